require 'json'
require 'uri'

# Every upstream reports each request as a line of JSON in the file LOG, before it answers. A key is the part of the
# request that was read and the idiom that has read it.
module Took
  PATHS = %w[ip body skip query cookie header host].map { |v| "/#{v}/login" }
  LOG = File.open(ENV.fetch('LOG'), File::WRONLY | File::APPEND)
  LOG.sync = true

  def self.text(value)
    case value
    when Array then value.size == 1 ? text(value[0]) : nil
    when String, Numeric then value.to_s.dup.force_encoding('UTF-8').scrub("\uFFFD")
    end
  end

  # An idiom that fails counts as having read nothing.
  def self.read(idiom)
    text(idiom.call)
  rescue StandardError
    nil
  end

  def self.say(trial, idioms)
    took = idioms.transform_values { |idiom| read(idiom) }
    line = JSON.generate({ upstream: ENV.fetch('NAME'), trial: text(trial).to_s, took: took })
    LOG.syswrite("#{line}\n")
    line
  end
end
