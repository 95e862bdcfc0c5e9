'use strict'
// Every upstream reports each request as a line of JSON in the file LOG, before it answers. A key is the part of
// the request that was read and the idiom that has read it.
const fs = require('fs')

const paths = ['ip', 'body', 'skip', 'query', 'cookie', 'header', 'host'].map(v => `/${v}/login`)
const log = fs.openSync(process.env.LOG, 'a')

// text returns a value as it would be in a database query, in which lists become texts.
function text (v) {
  if (Array.isArray(v) && v.length === 1) return text(v[0])
  if (typeof v === 'number') return String(v)
  return typeof v === 'string' ? v.toWellFormed?.() ?? v : undefined
}

// read calls an idiom. An idiom that fails counts as having read nothing.
function read (idiom) {
  try { return text(idiom()) } catch { return undefined }
}

function say (upstream, trial, idioms) {
  const took = Object.fromEntries(Object.entries(idioms).map(([k, idiom]) => [k, read(idiom) ?? null]))
  const line = JSON.stringify({ upstream, trial: trial ?? '', took })
  fs.writeSync(log, line + '\n')
  return line
}

module.exports = { paths, say }
