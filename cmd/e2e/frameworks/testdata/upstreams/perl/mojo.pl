use FindBin;
use lib $FindBin::Bin;
use Mojolicious::Lite -signatures;
use Mojo::JSON qw(decode_json);
use Took;

app->log->level('fatal');
app->secrets(['x']);

sub take ($c, $route = undef) {
    my $r = $c->req;
    $c->render(format => 'json', data => Took::say(scalar $r->headers->header('X-Trial'),
        'path router' => sub { $route },
        'path path' => sub { $r->url->path->to_route },
        'path url' => sub { $r->url->path->to_string },
        'body param' => sub { $c->param('user_name') },
        'body body_params' => sub { $r->body_params->param('user_name') },
        'body json' => sub { $r->json->{user_name} },
        'body json pointer' => sub { $r->json('/user_name') },
        'query query_params' => sub { $r->query_params->param('user_name') },
        'cookie cookie' => sub { $c->cookie('user_name') },
        'header header' => sub { $r->headers->header('X-User-Name') },
        'host headers' => sub { $r->headers->host },
        'host url' => sub { $r->url->to_abs->host },
    ));
}

for my $path (@Took::paths) {
    any $path => [format => 0] => sub ($c) { take($c, $path) };
}
any '/*rest' => {rest => ''} => sub ($c) { take($c) };

app->start('daemon', '-l', "http://127.0.0.1:$ENV{PORT}");
