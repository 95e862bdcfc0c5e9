// Calls an API that has limits, and waits for as long as a denial requires. Uses only Node's own modules.
//
//     node api_client.mjs http://127.0.0.1:8080/orders 3

import { setTimeout as sleep } from "node:timers/promises";

// get returns the response. If a denial asks to wait for longer than patience, in seconds, get returns the denial.
export async function get(url, { attempts = 5, patience = 60 } = {}) {
  const end = performance.now() + patience * 1000;
  for (;;) {
    const response = await fetch(url, { signal: AbortSignal.timeout(10_000) });
    const promised = response.headers.get("Retry-After") ?? "";
    if (![429, 503].includes(response.status) || !/^\d+$/.test(promised) || --attempts === 0) return response;
    // Wait at least as long as promised, plus a random time, so that not all clients return at once.
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
