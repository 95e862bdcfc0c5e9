require 'sinatra/base'
require_relative 'took'

class Login < Sinatra::Base
  set :protection, false
  set :host_authorization, {}
  set :show_exceptions, false
  set :raise_errors, false

  helpers do
    def take(route = nil)
      body = request.body.read
      request.body.rewind
      content_type :json
      Took.say(env['HTTP_X_TRIAL'], {
        'path router' => -> { route },
        'path path_info' => -> { request.path_info },
        'body params' => -> { params['user_name'] },
        'body json, else params' => -> { (JSON.parse(body) rescue params)['user_name'] },
        'cookie cookies' => -> { request.cookies['user_name'] },
        'header env' => -> { env['HTTP_X_USER_NAME'] },
        'host host' => -> { request.host },
      })
    end
  end

  Took::PATHS.each do |path|
    get(path) { take(path) }
    post(path) { take(path) }
  end
  error(404, 400) { take }
end
