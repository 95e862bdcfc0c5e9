import type { IncomingMessage, ServerResponse } from "node:http";
import type { SecureContextOptions } from "node:tls";

/** A value, or a promise of one. */
type Maybe<T> = T | Promise<T>;

export interface SluiceOptions {
  /** The address of the service's --check: "http://127.0.0.1:8081" by default. */
  url?: string;
  /** One of the service's --door-tokens. */
  token?: string;
  /** For an https URL: its CA and a client certificate, with the names of https.request's options. */
  tls?: SecureContextOptions;
  /** How long a check may take, in milliseconds, including its repetition: 500 by default. */
  deadline?: number;
  /** The decision while the service does not answer: "allow" by default. */
  onError?: "allow" | "deny";
  /** Gets a line when the service stops answering, and when it answers again: console.warn by default. */
  log?: (line: string) => void;
}

/** A check of a request by all rules that match it, or of a key by one rule. */
export type Check = { cost?: number; id?: string; place?: boolean } & (
  | { request: RequestDescription; rule?: never; key?: never }
  | { rule: string; key?: Record<string, string>; request?: never }
);

export interface RequestDescription {
  method?: string;
  host?: string;
  /** Path and query, escaped as received. */
  path: string;
  headers?: Record<string, string | string[]>;
  /** The address of the connection's other end. */
  client?: string;
  attributes?: Record<string, string>;
  body?: string;
  body_base64?: string;
}

/** The answer of the service: docs/ask.md and its /v1/openapi.json explain it. */
export interface Answer {
  allowed: boolean;
  /** 200, or the status of the denial. */
  status: number;
  /** Seconds until the request would be allowed. Missing if waiting does not help. */
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
  /** The only rule to apply, together with key. Without it, all rules that match the request apply. */
  rule?: string;
  /** The parts of the rule's key by their names, as in { api_key: "k-42" }. */
  key?: (req: Req) => Maybe<Record<string, string | undefined>>;
  /** The cost of the request: 1 by default. */
  cost?: number | ((req: Req) => Maybe<number>);
  /** Returns true for requests that pass without a check. */
  skip?: (req: Req) => Maybe<boolean>;
  /** Values for the key parts attr:NAME. */
  attributes?: (req: Req) => Maybe<Record<string, unknown>>;
  /** The body, for rules that read it: text, bytes, or the value that a parser returned. */
  body?: (req: Req) => unknown;
  /** Overrides onError of the Sluice, for all requests or for each. */
  onError?: "allow" | "deny" | ((req: Req) => Maybe<"allow" | "deny">);
  /** Answers a denied request. Status and header fields are already set. In Fastify, next is missing. */
  handler?: (req: Req, res: Res, answer: Answer, next: (error?: any) => void) => unknown;
}

/** The decision about a request, for its handler: req.sluice, or in Fastify request.raw.sluice. */
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

/** A client of a Sluice service ("sluice serve --check"). A program needs only one. */
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

  /** Checks, and charges if allowed. Without an answer, onError decides. Rejects only if the check is invalid. */
  check(check: Check, options?: { onError?: "allow" | "deny" }): Promise<Answer>;
  /** Returns the answer to a check, and charges nothing. Unlike check, it and the calls below reject if the service does not answer. */
  peek(check: Check): Promise<Answer>;
  /** Gives back the charge of a check. */
  refund(check: Check): Promise<Answer>;
  /** Reports the outcome of a check. The check needs its id, and at is that of its answer. */
  settle(check: Check, outcome: Outcome, at?: string): Promise<{ settled: boolean }>;
  /** Holds a place in flight, by a call every three seconds, until it is released. */
  hold(place: string): void;
  /** Releases a place in flight, or in a queue. */
  release(place: string): Promise<{ released: boolean }>;

  /** Closes idle connections. Open ones do not keep the process running. */
  close(): void;
}
