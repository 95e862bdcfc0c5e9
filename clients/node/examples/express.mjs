// An Express app whose requests are limited by all rules of the policy. One route has an additional limit:
//
//     node express.mjs 3000 http://127.0.0.1:8081

import express from "express";
import { Sluice } from "@sluicehq/client";

const [port = "3000", url = "http://127.0.0.1:8081"] = process.argv.slice(2);

const sluice = new Sluice({ url });
const app = express();
app.use(express.json());
app.use(sluice.express({ body: (req) => req.body, onError: (req) => (/^\/login\/?$/i.test(req.path) ? "deny" : "allow") }));
app.get("/search", (req, res) => res.send("found\n"));

// This middleware applies one rule, with a key from the program.
const perUser = sluice.express({
  rule: "per-user",
  key: (req) => ({ "attr:user": req.get("X-User") ?? "anonymous" }),
  cost: 5,
  onError: "deny",
});
app.get("/report", perUser, (req, res) => res.send("report\n"));

app.post("/login", (req, res) => {
  const right = req.body.password === "right";
  res.status(right ? 200 : 401).send(right ? "welcome\n" : "wrong\n");
});

// The cost is known only after the work.
app.post("/export", (req, res) => {
  req.sluice?.settle({ cost: 7 });
  res.send("exported\n");
});

app.listen(Number(port), "127.0.0.1");
