require 'action_controller/railtie'
require_relative 'took'

class App < Rails::Application
  config.eager_load = false
  config.consider_all_requests_local = false
  config.hosts.clear
  config.secret_key_base = 'x' * 32
  config.logger = Logger.new(nil)
  config.api_only = false
  config.action_dispatch.show_exceptions = true
end

class LoginsController < ActionController::Base
  wrap_parameters format: [:json]

  def take
    body = request.raw_post
    render json: Took.say(request.headers['X-Trial'], {
      'path router' => -> { params[:route] },
      'path request.path' => -> { request.path },
      'body params' => -> { params[:user_name] },
      'body request_parameters' => -> { request.request_parameters['user_name'] },
      'body JSON' => -> { JSON.parse(body)['user_name'] },
      'body ActiveSupport' => -> { ActiveSupport::JSON.decode(body)['user_name'] },
      'query query_parameters' => -> { request.query_parameters['user_name'] },
      'cookie cookies' => -> { cookies[:user_name] },
      'header headers' => -> { request.headers['X-User-Name'] },
      'host host' => -> { request.host },
    })
  end
end

App.initialize!
App.routes.draw do
  Took::PATHS.each { |path| match path, to: 'logins#take', via: :all, defaults: { route: path }, format: false }
  match '*rest', to: 'logins#take', via: :all, format: false
  match '/', to: 'logins#take', via: :all
end
run App
