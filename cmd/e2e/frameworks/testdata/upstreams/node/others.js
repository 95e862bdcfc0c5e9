'use strict'
const http = require('http')
const Koa = require('koa')
const KoaRouter = require('@koa/router')
const koaBody = require('koa-bodyparser')
const fastify = require('fastify')
const hapi = require('@hapi/hapi')
const polka = require('polka')
const { formidable } = require('formidable')
const busboy = require('busboy')
const { paths, say } = require('./took')

function koa (name, options) {
  const app = new Koa()
  const router = new (KoaRouter.default ?? KoaRouter)()
  const take = route => ctx => {
    ctx.type = 'json'
    ctx.body = say(name, ctx.get('X-Trial'), {
      'path router': () => route,
      'path ctx.path': () => ctx.path,
      'body ctx.request.body': () => ctx.request.body.user_name,
      'body body, else query': () => ctx.request.body?.user_name ?? ctx.query.user_name,
      'query ctx.query': () => ctx.query.user_name,
      'query URL': () => ctx.URL.searchParams.get('user_name'),
      'cookie ctx.cookies': () => ctx.cookies.get('user_name'),
      'header ctx.get': () => ctx.get('X-User-Name') || undefined,
      'host ctx.host': () => ctx.host,
      'host ctx.hostname': () => ctx.hostname
    })
  }
  app.silent = true
  app.use(koaBody(options))
  for (const p of paths) router.all(p, take(p))
  app.use(router.routes())
  app.use(take())
  return app
}

// Fastify and Hapi listen in their own way, so they are functions of the port.
async function fastifyApp (name) {
  const app = fastify({ ignoreTrailingSlash: true })
  app.register(require('@fastify/cookie'))
  app.register(require('@fastify/formbody'))
  app.register(require('@fastify/multipart'), { attachFieldsToBody: 'keyValues' })
  const take = route => (req, reply) => reply.type('application/json').send(say(name, req.headers['x-trial'], {
    'path router': () => route,
    'path req.url': () => req.url.split('?')[0],
    'body req.body': () => req.body.user_name,
    'query req.query': () => req.query.user_name,
    'cookie req.cookies': () => req.cookies.user_name,
    'header req.headers': () => req.headers['x-user-name'],
    'host req.hostname': () => req.hostname
  }))
  for (const p of paths) app.all(p, take(p))
  app.setNotFoundHandler(take())
  return port => app.listen({ port, host: '127.0.0.1' })
}

async function hapiApp (name) {
  return port => {
    const server = hapi.server({ port, host: '127.0.0.1', router: { stripTrailingSlash: true } })
    const take = route => (req, h) => h.response(say(name, req.headers['x-trial'], {
      'path router': () => route,
      'path req.path': () => req.path,
      'body req.payload': () => req.payload.user_name,
      'query req.query': () => req.query.user_name,
      'cookie req.state': () => req.state.user_name,
      'header req.headers': () => req.headers['x-user-name'],
      'host req.info': () => req.info.host
    })).type('application/json')
    const payload = { multipart: true }
    for (const p of paths) server.route({ method: ['GET'], path: p, handler: take(p) }, {})
    for (const p of paths) server.route({ method: ['POST'], path: p, handler: take(p), options: { payload } })
    server.route({ method: '*', path: '/{p*}', handler: take() })
    return server.start()
  }
}

// Polka is an example of a router that decodes nothing.
function polkaApp (name) {
  const take = route => (req, res) => res.end(say(name, req.headers['x-trial'], {
    'path router': () => route,
    'path req.path': () => req.path,
    'query req.query': () => req.query.user_name,
    'header req.headers': () => req.headers['x-user-name']
  }))
  const app = polka({ onNoMatch: take() })
  for (const p of paths) app.all(p, take(p))
  return app
}

// server answers with the fields of a form, of which fields returns a promise.
const server = (name, fields) => http.createServer((req, res) => {
  const done = form => res.end(say(name, req.headers['x-trial'], {
    'path URL': () => new URL(req.url, 'http://localhost').pathname,
    'body fields': () => form.user_name
  }))
  req.on('error', () => {})
  fields(req).then(done, () => done({}))
})

const busboyFields = req => new Promise((resolve, reject) => {
  const form = {}
  const b = busboy({ headers: req.headers })
  b.on('field', (name, value) => { form[name] = value })
  b.on('file', (name, file) => file.resume())
  b.on('close', () => resolve(form))
  b.on('error', reject)
  req.pipe(b)
})

module.exports = {
  koa: n => koa(n),
  'koa-loose': n => koa(n, { enableTypes: ['json', 'form', 'text'], strict: false, detectJSON: () => true }),
  fastify: fastifyApp,
  hapi: hapiApp,
  polka: polkaApp,
  formidable: n => server(n, req => formidable({}).parse(req).then(([fields]) => fields)),
  busboy: n => server(n, busboyFields)
}
