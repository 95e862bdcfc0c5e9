'use strict'
// Node without a framework, with parsers that are often used with it.
const http = require('http')
const querystring = require('querystring')
const url = require('url')
const path = require('path')
const qs = require('qs')
const cookie = require('cookie')
const { say } = require('./took')

const base = 'http://localhost'

module.exports = name => http.createServer((req, res) => {
  const chunks = []
  req.on('data', c => chunks.push(c))
  req.on('error', () => {})
  req.on('end', () => {
    const body = Buffer.concat(chunks).toString()
    const target = () => new URL(req.url, base)
    const query = () => req.url.split('?', 2)[1] ?? ''
    const line = say(name, req.headers['x-trial'], {
      'path URL': () => target().pathname,
      'path URL, unescaped': () => decodeURIComponent(target().pathname),
      'path URL.parse': () => url.parse(req.url).pathname,
      'path split': () => req.url.split('?')[0],
      'path normalized': () => path.posix.normalize(decodeURIComponent(url.parse(req.url).pathname)),
      'path concatenated': () => new URL(base + req.url).pathname,
      'body URLSearchParams': () => new URLSearchParams(body).get('user_name'),
      'body querystring': () => querystring.parse(body).user_name,
      'body qs': () => qs.parse(body).user_name,
      'body qs with dots': () => qs.parse(body, { allowDots: true }).user_name,
      'body JSON.parse': () => JSON.parse(body).user_name,
      'body JSON, then form': () => { try { return JSON.parse(body).user_name } catch { return querystring.parse(body).user_name } },
      'body Object.assign': () => Object.assign({}, JSON.parse(body)).user_name,
      'query searchParams': () => target().searchParams.get('user_name'),
      'query querystring': () => querystring.parse(query()).user_name,
      'query qs': () => qs.parse(query()).user_name,
      'query URL.parse': () => url.parse(req.url, true).query.user_name,
      'cookie cookie': () => cookie.parse(req.headers.cookie ?? '').user_name,
      'header headers': () => req.headers['x-user-name'],
      'host headers': () => req.headers.host,
      'host URL': () => new URL(req.url, 'http://' + req.headers.host).host
    })
    res.setHeader('Content-Type', 'application/json')
    res.end(line)
  })
})
