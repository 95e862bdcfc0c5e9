'use strict'
// Runs every upstream of Node in one process. UPSTREAMS has their names and ports: "koa=8001 …".
const all = {
  node: require('./http'),
  ...require('./express'),
  ...require('./others')
}

// A request that makes one program fail must not end the others.
process.on('uncaughtException', () => {})

for (const pair of process.env.UPSTREAMS.split(' ')) {
  const [name, port] = pair.split('=')
  const upstream = all[name](name)
  if (typeof upstream.then === 'function') upstream.then(u => u(+port))
  else upstream.listen(+port, '127.0.0.1')
}
