require 'json'
require 'rack'
require_relative 'took'

# Rack itself, with and without routes of Rack::URLMap.
class App
  def initialize(route = nil) = @route = route

  def call(env)
    request = Rack::Request.new(env)
    body = request.body.read
    request.body.rewind
    line = Took.say(env['HTTP_X_TRIAL'], {
      'path map' => -> { @route if ['', '/'].include?(env['PATH_INFO']) },
      'path request.path' => -> { request.path.chomp('/') },
      'path unescaped' => -> { Rack::Utils.unescape_path(request.path) },
      'path REQUEST_URI' => -> { URI(env['REQUEST_URI']).path },
      'path cleaned' => -> { Rack::Utils.clean_path_info(Rack::Utils.unescape_path(request.path)) },
      'body params' => -> { request.params['user_name'] },
      'body POST' => -> { request.POST['user_name'] },
      'body json if said' => -> { JSON.parse(body)['user_name'] if request.media_type == 'application/json' },
      'body json' => -> { JSON.parse(body)['user_name'] },
      'body json, else params' => -> { (JSON.parse(body) rescue request.params)['user_name'] },
      'body decoded' => -> { URI.decode_www_form(body).assoc('user_name')&.last },
      'body decoded, last' => -> { URI.decode_www_form(body).to_h['user_name'] },
      'query GET' => -> { request.GET['user_name'] },
      'query parsed' => -> { Rack::Utils.parse_query(request.query_string)['user_name'] },
      'cookie cookies' => -> { request.cookies['user_name'] },
      'header env' => -> { env['HTTP_X_USER_NAME'] },
      'host host' => -> { request.host },
      'host HTTP_HOST' => -> { env['HTTP_HOST'] },
    })
    [200, { 'Content-Type' => 'application/json' }, [line]]
  end
end

run Rack::URLMap.new(Took::PATHS.to_h { |path| [path, App.new(path)] }.merge('/' => App.new))
