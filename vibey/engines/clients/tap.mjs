// Runs inside a coding client, before it, and reports what the client may hide: one line of JSON on standard error for
// each request that the provider refuses, for the first request of all, and for limits named with a success, these at
// most once in ten seconds. It changes nothing of what the client sends and receives.
//
// Requests are seen in two places. `undici:request:*` of node:diagnostics_channel sees all that go through undici,
// Node's own or one that the client brings along, whatever it has kept of `fetch`. The replaced `fetch` sees those of
// Bun, which has no such channels, and reads the body where an older undici does not publish it. A request that the
// replaced `fetch` makes is left to it, so that none is reported twice.
import { AsyncLocalStorage } from "node:async_hooks"
import { writeSync } from "node:fs"
import { createRequire, syncBuiltinESMExports } from "node:module"

const LIMITS_MS = 10_000
const BODY_MS = 1_000
const BODY_LENGTH = 4096

const key = process.env.VIBEY_TAP ?? ""
const base = process.env.VIBEY_TAP_BASE ?? ""
const options = process.env.VIBEY_TAP_NODE_OPTIONS
// Programs that the client starts are not watched, and do not get the key that signs the lines.
delete process.env.VIBEY_TAP
delete process.env.VIBEY_TAP_BASE
delete process.env.VIBEY_TAP_NODE_OPTIONS
if (options) process.env.NODE_OPTIONS = options
else if (options === "") delete process.env.NODE_OPTIONS

const asks = /(?:\/chat\/completions|\/v1\/messages|\/responses|[gG]enerateContent)(?:\?.*)?$/
// The headers that `vibey.engines.resets` reads.
const limits = /^(?:(?:x-(?:ms-)?)?retry-after(?:-ms)?|(?:x-|anthropic-)?rate-?limit(?:-.*)?|x-codex-.*)$/

let requested = false
let limitsTold = -Infinity

function tell(type, more = {}) {
  try {
    writeSync(2, JSON.stringify({ type, key, ...more }) + "\n")
  } catch {}
}

function watches(method, url) {
  return method.toUpperCase() === "POST" && url.startsWith(base) && asks.test(url)
}

function asked() {
  if (!requested) tell("vibey.request")
  requested = true
}

function answered(status, pairs) {
  const named = pairs.map(([name, value]) => [name.toLowerCase(), value])
  const headers = Object.fromEntries(named.filter(([name]) => name === "date" || limits.test(name)))
  if (status < 400 && Object.keys(headers).some((name) => limits.test(name))) {
    const now = performance.now()
    if (now - limitsTold >= LIMITS_MS) {
      limitsTold = now
      tell("vibey.limits", { status, headers })
    }
  }
  return headers
}

// A body that does not end is reported as far as it came.
function refused(status, headers, whole, soFar) {
  let told = false
  const once = (body) => {
    if (told) return
    told = true
    tell("vibey.refusal", { status, headers, body: body.slice(0, BODY_LENGTH) })
  }
  whole.then(once, () => once(soFar()))
  setTimeout(() => once(soFar()), BODY_MS).unref?.()
}

// --- fetch ---

const fetching = new AsyncLocalStorage()

function watchFetch() {
  const plain = globalThis.fetch
  if (!plain) return
  const tapped = async function (input, init) {
    let watched = false
    try {
      watched = watches(String(init?.method ?? input?.method ?? "GET"), String(input?.url ?? input))
    } catch {}
    if (!watched) return await plain.call(this, input, init)
    asked()
    const answer = await fetching.run(true, () => plain.call(this, input, init))
    try {
      const headers = answered(answer.status, [...answer.headers])
      if (answer.status >= 400) refused(answer.status, headers, answer.clone().text(), () => "")
    } catch {}
    return answer
  }
  globalThis.fetch = Object.assign(tapped, plain)
}

// --- undici ---

function pairsOf(headers) {
  if (!Array.isArray(headers)) return Object.entries(headers ?? {}).map(([name, value]) => [name, String(value)])
  const texts = headers.map((each) => Buffer.from(each).toString("latin1"))
  return texts.flatMap((name, at) => (at % 2 ? [] : [[name, texts[at + 1] ?? ""]]))
}

function plainText(chunks, encoding) {
  const zlib = require("node:zlib")
  const open = { gzip: zlib.gunzipSync, "x-gzip": zlib.gunzipSync, deflate: zlib.inflateSync, br: zlib.brotliDecompressSync }
  const raw = Buffer.concat(chunks)
  try {
    return (open[encoding]?.(raw) ?? raw).toString("utf8")
  } catch {
    return ""
  }
}

function watchUndici(channels) {
  const states = new WeakMap()
  const on = (name, act) =>
    channels.subscribe(`undici:request:${name}`, (message) => {
      try {
        act(message, states.get(message.request))
      } catch {}
    })
  on("create", ({ request }) => {
    if (fetching.getStore() || !watches(String(request.method), `${request.origin ?? ""}${request.path}`)) return
    states.set(request, { chunks: [], size: 0 })
    asked()
  })
  on("headers", ({ response }, state) => {
    if (!state) return
    const pairs = pairsOf(response.headers)
    const headers = answered(response.statusCode, pairs)
    if (response.statusCode < 400) return
    const encoding = pairs.find(([name]) => name.toLowerCase() === "content-encoding")?.[1].trim().toLowerCase()
    const text = () => plainText(state.chunks, encoding)
    const whole = new Promise((resolve) => {
      state.end = () => resolve(text())
    })
    refused(response.statusCode, headers, whole, text)
  })
  on("bodyChunkReceived", ({ chunk }, state) => {
    if (!state?.end || state.size > 16 * BODY_LENGTH) return
    state.chunks.push(Buffer.from(chunk))
    state.size += chunk.length
  })
  on("trailers", (_, state) => state?.end?.())
  on("error", (_, state) => state?.end?.())
}

// --- wrappers ---

// A client may be a small program that starts the client itself and waits for it, with its own standard output. That
// one is watched as well. Other programs do not get the client's standard output, and one that did could write there
// whatever it likes.
function watchChildren() {
  const children = require("node:child_process")
  const inherits = (stdio) => {
    const output = Array.isArray(stdio) ? stdio[1] : stdio
    return output === "inherit" || output === 1 || output === process.stdout
  }
  const watched = (environment) => {
    const given = environment.NODE_OPTIONS ?? ""
    const loaded = `--import=${import.meta.url} ${given}`.trim()
    const variables = { VIBEY_TAP: key, VIBEY_TAP_BASE: base, VIBEY_TAP_NODE_OPTIONS: given, NODE_OPTIONS: loaded }
    return { ...environment, ...variables }
  }
  const { spawn } = children.ChildProcess.prototype
  children.ChildProcess.prototype.spawn = function (settings) {
    if (inherits(settings?.stdio) && Array.isArray(settings.envPairs)) {
      const environment = Object.fromEntries(settings.envPairs.map((pair) => pair.split(/=(.*)/s, 2)))
      settings.envPairs = Object.entries(watched(environment)).map(([name, value]) => `${name}=${value}`)
    }
    return spawn.apply(this, arguments)
  }
  const { spawnSync } = children
  children.spawnSync = function (file, args, settings) {
    const [listed, chosen] = Array.isArray(args) ? [args, settings] : [[], args ?? settings]
    if (!inherits(chosen?.stdio)) return spawnSync.apply(this, arguments)
    return spawnSync.call(this, file, listed, { ...chosen, env: watched(chosen.env ?? process.env) })
  }
  syncBuiltinESMExports()
}

const require = createRequire(import.meta.url)
if (key) {
  watchFetch()
  if (!process.versions.bun) {
    watchUndici(require("node:diagnostics_channel"))
    watchChildren()
  }
}

// Where the client loads this file as a plugin of its own, it wants a function that gives hooks.
export const vibey = async () => ({})
