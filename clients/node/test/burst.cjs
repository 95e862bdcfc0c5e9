// Many checks at once: burst.cjs SERVICE COUNT. It writes how many are allowed.
"use strict";

const { Sluice } = require("@sluicehq/client");

const [service, count] = process.argv.slice(2);
const sluice = new Sluice({ url: `http://${service}`, deadline: 10_000, onError: "deny" });
const checks = Array.from({ length: Number(count) }, () => sluice.check({ rule: "all" }));
Promise.all(checks).then((answers) => console.log(answers.filter((answer) => answer.allowed).length));
