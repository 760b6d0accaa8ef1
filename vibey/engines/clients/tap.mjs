// Runs inside a coding client, before it: tells Vibey of every refusal its provider answers, which the client may
// hide while it waits and tries again. It looks and changes nothing. One line of JSON on standard error for each.
import { writeSync } from "node:fs"

const key = process.env.VIBEY_TAP ?? ""
const base = process.env.VIBEY_TAP_BASE ?? ""
const options = process.env.VIBEY_TAP_NODE_OPTIONS
// Programs that the client starts are not watched.
delete process.env.VIBEY_TAP
delete process.env.VIBEY_TAP_BASE
delete process.env.VIBEY_TAP_NODE_OPTIONS
if (options) process.env.NODE_OPTIONS = options
else if (options === "") delete process.env.NODE_OPTIONS

const asks = /(?:\/chat\/completions|\/v1\/messages|\/responses|[gG]enerateContent)(?:\?.*)?$/
const telling = /^(?:date|retry-after(?:-ms)?|(?:x|anthropic)-ratelimit-.*)$/

function tell(status, headers, body) {
  const line = JSON.stringify({ type: "vibey.refusal", key, status, headers, body }) + "\n"
  try {
    writeSync(2, line)
  } catch {}
}

if (key) {
  const plain = globalThis.fetch
  const tapped = async function (input, init) {
    const answer = await plain.call(this, input, init)
    try {
      const url = String(input?.url ?? input)
      const method = String(init?.method ?? input?.method ?? "GET").toUpperCase()
      if (answer.status >= 400 && method === "POST" && url.startsWith(base) && asks.test(url)) {
        const headers = Object.fromEntries([...answer.headers].filter(([name]) => telling.test(name)))
        const told = (body) => tell(answer.status, headers, body.slice(0, 4096))
        answer.clone().text().then(told, () => told(""))
      }
    } catch {}
    return answer
  }
  globalThis.fetch = Object.assign(tapped, plain)
}

// Where the client loads this file as a plugin of its own, it wants a function that gives hooks.
export const vibey = async () => ({})
