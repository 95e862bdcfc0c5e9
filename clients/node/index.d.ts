import type { IncomingMessage, ServerResponse } from "node:http";
import type { SecureContextOptions } from "node:tls";

/** A value now, or later. */
type Maybe<T> = T | Promise<T>;

export interface SluiceOptions {
  /** The address of the service's --check: "http://127.0.0.1:8081" by default. */
  url?: string;
  /** One of the service's --door-tokens. */
  token?: string;
  /** Of an https url: its CA, and a client certificate, as https.request has them. */
  tls?: SecureContextOptions;
  /** How long a check may take, in milliseconds, with its repetition: 500 by default. */
  deadline?: number;
  /** What happens while the service does not answer: "allow" by default. */
  onError?: "allow" | "deny";
  /** Gets a line when the service stops answering, and when it answers again: console.warn by default. */
  log?: (line: string) => void;
}

/** What to ask: about a request and all rules that match it, or about one rule and a key of it. */
export type Check = { cost?: number; id?: string; place?: boolean } & (
  | { request: RequestDescription; rule?: never; key?: never }
  | { rule: string; key?: Record<string, string>; request?: never }
);

export interface RequestDescription {
  method?: string;
  host?: string;
  /** Path and query, escaped as they came. */
  path: string;
  headers?: Record<string, string | string[]>;
  /** The address that the connection came from. */
  client?: string;
  attributes?: Record<string, string>;
  body?: string;
  body_base64?: string;
}

/** The answer of the service: docs/ask.md and its /v1/openapi.json explain it. */
export interface Answer {
  allowed: boolean;
  /** 200, or the status of the refusal. */
  status: number;
  /** Seconds until it fits. It is missing where waiting does not help. */
  retry_after?: number;
  /** Seconds until the turn of a queued request. */
  delay: number;
  exempt?: boolean;
  degraded?: boolean;
  unavailable?: boolean;
  repeated?: boolean;
  /** The rules with "over: mark" that the request exceeds. */
  over?: string[];
  missing?: string;
  blocked?: string;
  at?: string;
  place?: string;
  results: Result[];
  headers: Record<string, string>;
  body?: string;
}

/** What one limit decided. */
export interface Result {
  rule: string;
  name: string;
  from: string;
  allowed: boolean;
  shadow: boolean;
  cost?: number;
  unit?: "micro-usd";
  limit?: number;
  remaining?: number;
  reset?: number;
  retry_after?: number;
}

/** The outcome of a request. Missing members are taken from the response. */
export interface Outcome {
  status?: number;
  headers?: Record<string, string | string[]>;
  bytes?: number;
  /** The cost, for rules that take it from the response. */
  cost?: number;
  /** Numbers of the response by their paths, such as "usage.total_tokens". */
  numbers?: Record<string, number>;
  /** Whether the request counts, regardless of its status. */
  counts?: boolean;
}

export interface LimitOptions<Req = any, Res = any> {
  /** The rule that alone is asked, about the key. Without it, all rules that match the request are. */
  rule?: string;
  /** The parts of the rule's key by their names, as in { api_key: "k-42" }. */
  key?: (req: Req) => Maybe<Record<string, string | undefined>>;
  /** For how many requests this one counts: 1 by default. */
  cost?: number | ((req: Req) => Maybe<number>);
  /** Returns true for requests that pass unasked and uncounted. */
  skip?: (req: Req) => Maybe<boolean>;
  /** Values for the key parts attr:NAME. */
  attributes?: (req: Req) => Maybe<Record<string, unknown>>;
  /** The body, for rules that go by it: text, bytes, or what a parser made of it. */
  body?: (req: Req) => unknown;
  /** In place of that of the Sluice: one for all requests, or for each. */
  onError?: "allow" | "deny" | ((req: Req) => Maybe<"allow" | "deny">);
  /** Answers a request that is refused. Status and fields are set. Fastify's has no next. */
  handler?: (req: Req, res: Res, answer: Answer, next: (error?: any) => void) => unknown;
}

/** The decision about a request, for its handler: req.sluice, or request.raw.sluice in Fastify. */
export interface Passage {
  answer: Answer;
  /** Adds to the outcome that is reported after the response. */
  settle(outcome: Outcome): void;
}

declare module "http" {
  interface IncomingMessage {
    sluice?: Passage;
  }
}

/** Asks a Sluice service ("sluice serve --check"). Make one for the whole program. */
export class Sluice {
  constructor(options?: SluiceOptions);

  /** Middleware for Express, and for other frameworks with (req, res, next). */
  express<Req extends IncomingMessage = any, Res extends ServerResponse = any>(
    options?: LimitOptions<Req, Res>,
  ): (req: Req, res: Res, next: (error?: any) => void) => void;

  /** A listener for node:http, which calls the handler for requests that may pass. */
  http(
    handler: (req: IncomingMessage, res: ServerResponse) => unknown,
    options?: LimitOptions<IncomingMessage, ServerResponse>,
  ): (req: IncomingMessage, res: ServerResponse) => void;

  /** A hook for Fastify: onRequest, or preHandler if it needs the body. */
  fastify<Request = any, Reply = any>(options?: LimitOptions<Request, Reply>): (request: Request, reply: Reply) => Promise<any>;

  /** Asks, and charges what is allowed. Without an answer, onError decides. It rejects only if the check is invalid. */
  check(check: Check, options?: { onError?: "allow" | "deny" }): Promise<Answer>;
  /** Asks, and charges nothing. This and what follows rejects if the service does not answer. */
  peek(check: Check): Promise<Answer>;
  /** Gives back the charge of a check. */
  refund(check: Check): Promise<Answer>;
  /** Reports the outcome of a check with its id, and the at of the answer. */
  settle(check: Check, outcome: Outcome, at?: string): Promise<{ settled: boolean }>;
  /** Keeps a place in flight, every three seconds, until it is released. */
  hold(place: string): void;
  /** Frees a place, or gives up a turn. */
  release(place: string): Promise<{ released: boolean }>;

  /** Closes idle connections. The process ends without it, too. */
  close(): void;
}
