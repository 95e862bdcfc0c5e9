// Sends checks to Sluice over the Redis protocol, with the usual Redis client for Node.
//
//     npm ci && node resp_throttle.mjs redis://localhost:6380
//
// The program needs a policy with a rule "per-key" by api_key.
import { createClient } from "redis";

const sluice = createClient({ url: process.argv[2] });
await sluice.connect();

// throttle checks a limit that the program sets: count requests in period seconds, and maxBurst + 1 at once.
async function throttle(key, maxBurst, count, period, quantity = 1) {
  const numbers = [maxBurst, count, period, quantity].map(String);
  const [limited, limit, remaining, retryAfter, resetAfter] = await sluice.sendCommand(["CL.THROTTLE", key, ...numbers]);
  return { limited: limited === 1, limit, remaining, retryAfter, resetAfter };
}

// check checks a rule of the policy. The answer is a list of names and values in RESP2, and a map in RESP3.
async function check(rule, key, cost = 1) {
  const answer = await sluice.sendCommand(["SLUICE.CHECK", rule, ...Object.entries(key).flat(), "COST", String(cost)]);
  if (!Array.isArray(answer)) return answer;
  return Object.fromEntries(answer.flatMap((name, i) => (i % 2 === 0 ? [[name, answer[i + 1]]] : [])));
}

let answer = await throttle("user123", 15, 30, 60);
console.log(answer.limited ? "limited" : "allowed", "and", answer.remaining, "left of", answer.limit);

answer = await check("per-key", { api_key: "k-42" }, 2);
console.log(answer.allowed ? "allowed" : "refused", "and", answer.remaining, "left of", answer.rule);

// Commands that are sent without waiting for an answer share a pipeline.
const answers = await Promise.all(Array.from({ length: 20 }, () => throttle("user456", 15, 30, 60)));
const allowed = answers.filter((a) => !a.limited).length;
console.log(allowed, "of", answers.length, "allowed, again in", answers.at(-1).retryAfter, "s");

await sluice.close();
