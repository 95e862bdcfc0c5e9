// Sends a check to Sluice before each piece of work. Uses only Node's own modules. This command does four pieces of
// work under the rule "jobs", and waits when Sluice requires it:
//
//     node json_client.mjs 127.0.0.1:8081 4

import { randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";

export class Sluice {
  constructor(address, { token, timeout = 1000 } = {}) {
    this.base = `http://${address}`;
    this.timeout = timeout;
    this.headers = { "Content-Type": "application/json" };
    if (token) this.headers.Authorization = `Bearer ${token}`;
  }

  async ask(path, question) {
    const response = await fetch(this.base + path, {
      method: "POST",
      headers: this.headers,
      body: JSON.stringify(question),
      signal: AbortSignal.timeout(this.timeout),
    });
    const answer = await response.json();
    if (response.status !== 200) throw new Error(`${response.status}: ${answer.detail}`);
    return answer;
  }

  // check makes a check, and repeats it once if there was no answer. Because of the id, the check is not charged twice.
  async check(rule, key, cost = 1) {
    const question = { rule, key, cost, id: randomUUID() };
    try {
      return await this.ask("/v1/check", question);
    } catch (error) {
      if (error instanceof TypeError || error.name === "TimeoutError") return this.ask("/v1/check", question);
      throw error;
    }
  }

  // wait waits until a check is allowed. It returns false if this would take longer than patience, or never happen.
  async wait(rule, key, { cost = 1, patience = 60 } = {}) {
    const end = performance.now() + patience * 1000;
    for (;;) {
      const answer = await this.check(rule, key, cost);
      const pause = answer.allowed ? answer.delay : answer.retry_after;
      if (pause === undefined || performance.now() + pause * 1000 > end) return false;
      if (pause > 0) {
        console.log(`waiting ${pause} s`);
        await sleep(pause * 1000);
      }
      if (answer.allowed) return true;
    }
  }
}

async function main(address, count) {
  const sluice = new Sluice(address, { token: process.env.DOOR_TOKEN });
  for (let n = 1; n <= Number(count); n++) {
    if (!(await sluice.wait("jobs", { api_key: "k-42" }))) throw new Error("there is no room for this work");
    console.log(`work ${n}`);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main(...process.argv.slice(2));
