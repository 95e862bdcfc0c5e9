'use strict'
const cookies = require('cookie-parser')
const multer = require('multer')
const { paths, say } = require('./took')
const v4 = require('express')
const v5 = require('express5')

// app returns an Express application that reads bodies with the given parsers.
function app (express, name, ...parsers) {
  const a = express()
  a.use(cookies(), ...parsers)
  const take = route => (req, res) => res.type('json').send(say(name, req.get('X-Trial'), {
    'path router': () => route,
    'path req.path': () => req.path,
    'path unescaped': () => decodeURIComponent(req.path),
    'body req.body': () => req.body.user_name,
    'body req.body, else query': () => req.body?.user_name ?? req.query.user_name,
    ...(express === v4 && { 'body req.param': () => req.param('user_name') }),
    'query req.query': () => req.query.user_name,
    'cookie req.cookies': () => req.cookies.user_name,
    'header req.get': () => req.get('X-User-Name'),
    'host req.hostname': () => req.hostname,
    'host req.host': () => req.host
  }))
  for (const p of paths) a.all(p, take(p))
  a.use(take())
  a.use((err, req, res, next) => res.status(err.status ?? 500).send(say(name, req.get('X-Trial'), {})))
  return a
}

// The usual application: JSON and forms, each by its Content-Type.
const usual = (name, v) => app(v, name, v.json(), v.urlencoded({ extended: true }))
// One application reads every type as a form, and one reads every type as JSON.
const anything = () => true

module.exports = {
  express: n => usual(n, v4),
  express5: n => usual(n, v5),
  'express-simple': n => app(v4, n, v4.json({ strict: false }), v4.urlencoded({ extended: false })),
  'express-any-json': n => app(v4, n, v4.json({ type: anything })),
  'express-any-form': n => app(v4, n, v4.urlencoded({ type: anything, extended: true })),
  'express-text': n => app(v4, n, v4.text({ type: anything }), (req, res, next) => {
    try { req.body = JSON.parse(req.body) } catch { req.body = {} }
    next()
  }),
  multer: n => app(v4, n, v4.json(), v4.urlencoded({ extended: true }), multer().any())
}
