// Many checks at once: burst.cjs URL COUNT [OPTIONS]. It writes how many are allowed.
"use strict";

const { Sluice } = require("@sluicehq/client");

const [url, count, options = "{}"] = process.argv.slice(2);
const sluice = new Sluice({ url, deadline: 10_000, onError: "deny", ...JSON.parse(options) });
const checks = Array.from({ length: Number(count) }, () => sluice.check({ rule: "all" }));
Promise.all(checks).then((answers) => console.log(answers.filter((answer) => answer.allowed).length));
