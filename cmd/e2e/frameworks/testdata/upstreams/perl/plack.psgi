use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin, '.';
use JSON::PP;
use Plack::App::URLMap;
use Plack::Request;
use Took;

sub app {
    my $route = shift;
    return sub {
        my $request = Plack::Request->new(shift);
        my $line = Took::say(scalar $request->header('X-Trial'),
            'path map' => sub { $request->path_info =~ m{^/?$} ? $route : undef },
            'path joined' => sub { $request->script_name . $request->path_info },
            'path uri' => sub { $request->uri->path },
            'body param' => sub { $request->param('user_name') },
            'body parameters' => sub { $request->parameters->{user_name} },
            'body body_parameters' => sub { $request->body_parameters->{user_name} },
            'body decode_json' => sub { decode_json($request->content)->{user_name} },
            'body relaxed json' => sub { JSON::PP->new->relaxed->utf8->decode($request->content)->{user_name} },
            'query query_parameters' => sub { $request->query_parameters->{user_name} },
            'cookie cookies' => sub { $request->cookies->{user_name} },
            'header header' => sub { $request->header('X-User-Name') },
            'host host' => sub { $request->env->{HTTP_HOST} },
        );
        return [200, ['Content-Type' => 'application/json'], [$line]];
    };
}

my $map = Plack::App::URLMap->new;
$map->map($_ => app($_)) for @Took::paths;
$map->map('/' => app());
$map->to_app;
