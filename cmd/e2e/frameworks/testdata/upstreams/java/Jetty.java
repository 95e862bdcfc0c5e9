import java.net.InetSocketAddress;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.*;

class Jetty {
    public static void main(String[] args) throws Exception {
        Server server = new Server(new InetSocketAddress("127.0.0.1", Took.PORT));
        ServletContextHandler context = new ServletContextHandler();
        for (String kind : Took.KINDS) {
            String path = "/" + kind + "/login";
            context.addServlet(new ServletHolder(new JettyLogin(path)), path);
        }
        context.addServlet(new ServletHolder(new JettyLogin(null)), "/");
        server.setHandler(context);
        server.start();
        server.join();
    }
}
