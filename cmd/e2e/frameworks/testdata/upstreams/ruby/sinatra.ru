require_relative 'sinatra'
run Login
