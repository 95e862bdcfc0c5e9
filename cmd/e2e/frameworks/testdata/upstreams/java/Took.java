import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.gson.Gson;
import com.google.gson.JsonParser;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.Callable;

/**
 * What every upstream says about a request: a line of JSON in the file LOG, written before
 * the answer. The keys are the part that was read and the idiom that has read it.
 */
class Took {
    static final int PORT = Integer.parseInt(System.getenv("PORT"));
    static final List<String> KINDS = List.of("ip", "body", "skip", "query", "cookie", "header", "host");
    private static final Path LOG = Path.of(System.getenv("LOG"));

    private final Map<String, String> took = new TreeMap<>();

    /** An idiom that fails counts as having read nothing. */
    Took read(String name, Callable<Object> idiom) {
        String value = null;
        try {
            Object o = idiom.call();
            if (o instanceof Number || o instanceof String) value = o.toString();
        } catch (Exception | StackOverflowError e) {
            value = null;
        }
        took.put(name, value);
        return this;
    }

    /** JSON parsers that Java programs use. */
    Took json(byte[] body) {
        return read("body Jackson", () -> new ObjectMapper().readTree(body).get("user_name").asText(null))
            .read("body Jackson map", () -> new ObjectMapper().readValue(body, Map.class).get("user_name"))
            .read("body Gson", () -> JsonParser.parseString(text(body)).getAsJsonObject().get("user_name").getAsString())
            .read("body Gson map", () -> new Gson().fromJson(text(body), Map.class).get("user_name"));
    }

    private static String text(byte[] body) { return new String(body, StandardCharsets.UTF_8); }

    String say(String trial) throws java.io.IOException {
        Map<String, Object> line = new TreeMap<>();
        line.put("upstream", System.getenv("NAME"));
        line.put("trial", trial == null ? "" : trial);
        line.put("took", took);
        String text = new com.google.gson.GsonBuilder().serializeNulls().create().toJson(line) + "\n";
        Files.write(LOG, text.getBytes(StandardCharsets.UTF_8), StandardOpenOption.APPEND);
        return text;
    }
}
