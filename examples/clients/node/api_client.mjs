// Calls an API that has limits, and does what a refusal says. Only what comes with Node.
//
//     node api_client.mjs http://127.0.0.1:8080/orders 3

import { setTimeout as sleep } from "node:timers/promises";

// get returns the response: the refusal if the wait would be longer than patience, in seconds.
export async function get(url, { attempts = 5, patience = 60 } = {}) {
  const end = performance.now() + patience * 1000;
  for (;;) {
    const response = await fetch(url, { signal: AbortSignal.timeout(10_000) });
    const promised = response.headers.get("Retry-After") ?? "";
    if (![429, 503].includes(response.status) || !/^\d+$/.test(promised) || --attempts === 0) return response;
    // Never earlier than promised, and not at the same moment as everybody else.
    const wait = promised * 1000 * (1 + Math.random() / 10);
    if (performance.now() + wait > end) return response;
    await response.body?.cancel();
    await sleep(wait);
  }
}

const [url, count] = process.argv.slice(2);
for (let n = 0; n < Number(count); n++) {
  const response = await get(url);
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  console.log(await response.text());
}
