// A program that asks before it acts, in node and nothing else: try it with
//   codesdk wrap --mode auto -- node examples/policy_channel/producer.mjs README.md
// It reads the file that it is given, which is a call of its tool fs.read, and then wants to run a shell.
import { randomUUID } from 'node:crypto';
import { readFileSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';

const MARKER = '@@MEM_TOOL_EVENT@@ ';
const pending = new Map();
let timeoutMs = 300_000;
let closed = null; // why nobody decides any more

function say(type, id, fields) {
  writeSync(1, MARKER + JSON.stringify({ v: 1, type, ts: new Date().toISOString(), id, ...fields }) + '\n');
}

// Whatever ends the wait without an allow is a no: a deny, an abort, the end of stdin, the timeout.
function settle(id, decision) {
  const waiting = pending.get(id);
  if (!waiting) return false;
  pending.delete(id);
  clearTimeout(waiting.timer);
  waiting.resolve(decision);
  return true;
}

function settleAll(reason) {
  closed = reason;
  for (const id of [...pending.keys()]) settle(id, { decision: 'deny', reason });
}

const lines = createInterface({ input: process.stdin });
lines.on('close', () => settleAll('nobody decides any more'));
lines.on('line', (line) => {
  let command;
  try {
    command = JSON.parse(line);
  } catch {
    return;
  }
  if (command.type === 'policy.ping') {
    timeoutMs = command.timeout_ms ?? timeoutMs;
    say('policy.ack', command.id, {});
  } else if (command.type === 'policy.abort') {
    settleAll(command.reason);
    process.exitCode = 3;
    process.stdin.destroy();
  } else if (command.type === 'policy.decision' && !settle(command.id, command)) {
    say('tool.progress', command.id, { stage: 'warning', message: 'a decision on an unknown call was ignored' });
  }
});

async function tool(name, action, args, run) {
  const id = randomUUID();
  const decided = new Promise((resolve) => {
    const timer = setTimeout(() => settle(id, { decision: 'deny', reason: 'policy timeout' }), timeoutMs);
    pending.set(id, { resolve, timer });
  });
  say('tool.request', id, { tool: name, action, args, requires_policy: true });
  if (closed) settle(id, { decision: 'deny', reason: closed });
  const { decision, reason, constraints } = await decided;
  // This program knows no constraints, so it cannot keep to any.
  const error = constraints ? 'constraints are not supported' : reason || 'denied';
  if (decision !== 'allow' || constraints) {
    say('tool.result', id, { ok: false, error });
    console.log(`${name}: no (${error})`);
    return;
  }
  const output = run();
  say('tool.result', id, { ok: true, output });
  console.log(`${name}: ${output}`);
}

const path = process.argv[2] ?? 'README.md';
await tool('fs.read', 'read', { path }, () => `${readFileSync(path).length} bytes`);
await tool('shell', 'exec', { command: 'uname' }, () => 'ran');
process.stdin.destroy();
