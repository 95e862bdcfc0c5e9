import javax.servlet.http.*;
import java.io.IOException;
import java.net.URI;

class JettyLogin extends HttpServlet {
    private final String route;

    JettyLogin(String route) { this.route = route; }

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
        boolean form = String.valueOf(request.getContentType()).startsWith("application/x-www-form-urlencoded");
        byte[] body = form ? new byte[0] : request.getInputStream().readAllBytes();
        Took took = new Took()
            .read("path servlet", () -> request.getPathInfo() == null ? route : null)
            .read("path getServletPath", () -> request.getServletPath())
            .read("path getRequestURI", () -> request.getRequestURI())
            .read("path URI", () -> URI.create(request.getRequestURI()).getPath())
            .read("body getParameter", () -> request.getParameter("user_name"))
            .json(body)
            .read("header getHeader", () -> request.getHeader("X-User-Name"))
            .read("host getServerName", () -> request.getServerName())
            .read("host getHeader", () -> request.getHeader("Host"));
        took.read("cookie getCookies", () -> {
            for (Cookie c : request.getCookies()) if (c.getName().equals("user_name")) return c.getValue();
            return null;
        });
        response.setContentType("application/json");
        response.getOutputStream().write(took.say(request.getHeader("X-Trial")).getBytes("UTF-8"));
    }
}
