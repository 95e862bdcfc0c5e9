import type { IncomingMessage, ServerResponse } from "node:http";
import type { SecureContextOptions } from "node:tls";

/** A value, or a promise of one. */
type Maybe<T> = T | Promise<T>;

export interface SluiceOptions {
  /** The URL of the service's --check: "http://127.0.0.1:8081" by default. */
  url?: string;
  /** One of the service's --door-tokens. */
  token?: string;
  /** For an https URL: the CA and a client certificate. The options are named as in https.request. */
  tls?: SecureContextOptions;
  /** The most time that a check takes, including its repetition, in milliseconds: 500 by default. */
  deadline?: number;
  /** The decision while the service does not answer: "allow" by default. */
  onError?: "allow" | "deny";
  /** A function that writes a line to a log, for example when the service stops answering, and when it answers again: console.warn by default. */
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
  /** The path and the query, escaped as in the received request. */
  path: string;
  headers?: Record<string, string | string[]>;
  /** The address of the connection's other end. */
  client?: string;
  attributes?: Record<string, string>;
  body?: string;
  body_base64?: string;
}

/** The answer of the service. docs/ask.md and the service's /v1/openapi.json describe its members. */
export interface Answer {
  allowed: boolean;
  /** 200, or the status of the denial. */
  status: number;
  /** Seconds until the request would be allowed. Missing if it is allowed, or if waiting does not help. */
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

/** The result of one limit. */
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
  /** The only rule to apply; needs key. Without rule, all rules that match the request apply. */
  rule?: string;
  /** Returns the parts of the rule's key by their names, such as { api_key: "k-42" }. */
  key?: (req: Req) => Maybe<Record<string, string | undefined>>;
  /** The cost of the request: 1 by default. */
  cost?: number | ((req: Req) => Maybe<number>);
  /** Returns true for requests that pass without a check. */
  skip?: (req: Req) => Maybe<boolean>;
  /** Returns the values of the key parts attr:NAME. */
  attributes?: (req: Req) => Maybe<Record<string, unknown>>;
  /** Returns the body, for rules that read it: text, bytes, or the value that a parser returned. */
  body?: (req: Req) => unknown;
  /** Replaces onError of the Sluice. If it is a function, it decides for each request. */
  onError?: "allow" | "deny" | ((req: Req) => Maybe<"allow" | "deny">);
  /** Answers a denied request. The status and the header fields are already set. In Fastify, there is no argument next. */
  handler?: (req: Req, res: Res, answer: Answer, next: (error?: any) => void) => unknown;
}

/** The decision about a request, for the request's handler: req.sluice, or in Fastify request.raw.sluice. */
export interface Passage {
  answer: Answer;
  /** Adds members to the outcome that is reported after the response. */
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

  /** Makes a check, and charges it if it is allowed. If the service does not answer, onError decides. The promise is rejected only if the check is invalid. */
  check(check: Check, options?: { onError?: "allow" | "deny" }): Promise<Answer>;
  /** Returns the answer to a check, but charges nothing. If the service does not answer, the promises of peek and of the methods below are rejected. */
  peek(check: Check): Promise<Answer>;
  /** Gives back the charge of a check. */
  refund(check: Check): Promise<Answer>;
  /** Reports the outcome of a check. The check must have its id. at is the member "at" of its answer. */
  settle(check: Check, outcome: Outcome, at?: string): Promise<{ settled: boolean }>;
  /** Holds a permit in flight, with a call every three seconds, until it is released. */
  hold(place: string): void;
  /** Releases a permit in flight, or a position in a queue. */
  release(place: string): Promise<{ released: boolean }>;

  /** Closes all connections as soon as no call is under way. Idle connections do not keep the process running. */
  close(): void;
}
