// An editor made of ACP's own TypeScript SDK. It takes orders on stdin and reports on stdout, one JSON object a line;
// the SDK checks every message that it is sent.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk/unstable";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import WebSocket from "ws";

const report = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const open = new Map();
let connection;
let child;
let socket;
let asked = 0;

function ask(method) {
  return ({ params, signal }) => {
    const number = asked++;
    report({ asked: number, method, params });
    return new Promise((resolve, reject) => {
      open.set(number, { resolve, reject });
      signal.addEventListener("abort", () => {
        report({ withdrawn: number });
        reject(acp.RequestError.requestCancelled?.() ?? new Error("cancelled"));
      });
    });
  };
}

function streamOf(order) {
  if (order.url) {
    class Socket extends WebSocket {
      constructor(...given) {
        super(...given);
        socket = this;
      }
    }
    const headers = order.token ? { authorization: `Bearer ${order.token}` } : {};
    return createWebSocketStream(order.url, { WebSocket: Socket, headers });
  }
  child = spawn(order.command[0], order.command.slice(1), { stdio: "pipe" });
  // Apart from the SDK's own complaints, which go to stderr and fail the test.
  child.stderr.on("data", (data) => report({ log: String(data) }));
  child.on("exit", (code, signal) => report({ exited: code, signal }));
  return acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
}

const orders = {
  connect(order) {
    const { client } = acp.methods;
    const app = acp
      .client({ name: "judge" })
      .onNotification(client.session.update, ({ params }) => report({ update: params }))
      .onNotification(client.elicitation.complete, () => {})
      .onRequest(client.session.requestPermission, ask("permission"))
      .onRequest(client.elicitation.create, ask("elicitation"))
      .onRequest(client.fs.readTextFile, ask("read"))
      .onRequest(client.fs.writeTextFile, ask("write"));
    connection = app.connect(streamOf(order));
    connection.closed.then(() => report({ closed: true }), () => report({ closed: true }));
  },
  request({ tag, method, params }) {
    connection.agent.request(method, params).then(
      (result) => report({ tag, result: result ?? null }),
      (error) => report({ tag, error: { code: error.code ?? 0, message: String(error.message) } }),
    );
  },
  notify({ method, params }) {
    connection.agent.notify(method, params);
  },
  answer({ asked: number, result }) {
    open.get(number).resolve(result);
  },
  hangup() {
    child?.kill("SIGKILL");
    socket?.terminate();
  },
  end() {
    child?.stdin.end();
    socket?.close();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  orders[order.do](order);
}
process.exit(0);
