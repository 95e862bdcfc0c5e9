// Writes the limit that ratelimit-header-parser reads from the response of a URL.
import { parseRateLimit } from "ratelimit-header-parser";

const response = await fetch(process.argv[2]);
const { limit, remaining, reset } = parseRateLimit(response.headers);
console.log(JSON.stringify({ limit, remaining, reset: reset && !isNaN(reset) ? reset.getTime() / 1000 : null }));
