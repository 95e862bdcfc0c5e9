import org.apache.catalina.Context;

class Tomcat {
    public static void main(String[] args) throws Exception {
        java.util.logging.LogManager.getLogManager().reset();
        var server = new org.apache.catalina.startup.Tomcat();
        server.setBaseDir(args[0]);
        server.setPort(Took.PORT);
        server.getConnector().setProperty("address", "127.0.0.1");
        Context context = server.addContext("", args[0]);
        for (String kind : Took.KINDS) {
            String path = "/" + kind + "/login";
            org.apache.catalina.startup.Tomcat.addServlet(context, kind, new TomcatLogin(path));
            context.addServletMappingDecoded(path, kind);
        }
        org.apache.catalina.startup.Tomcat.addServlet(context, "rest", new TomcatLogin(null));
        context.addServletMappingDecoded("/", "rest");
        server.start();
        server.getServer().await();
    }
}
