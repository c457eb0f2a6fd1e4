// A coding agent as a runtime of CodeSDK, without any library: JSON-RPC 2.0 in lines on stdin and stdout.
//
//   npx tsc -p examples/adapter_typescript
//   codesdk run --external small="node examples/adapter_typescript/dist/agent.mjs" --runtime external:small "What is in this folder?"
//
// It asks a model in OpenAI's Chat Completions format through CodeSDK's gateway and calls CodeSDK's tools.
// docs/adapter-protocol.md describes the messages.

const MODEL = "gpt-5-mini";
const PROMPT = "You are a coding agent. Work with the tools that you have, and say briefly what you did.";
const TRIES = 4;

// --- the messages, as far as they are used here ------------------------------------------------------

type Json = any;
type Id = number | string;
interface Block {
  type: string;
  text?: string;
  code?: string;
  name?: string;
  input?: Json;
  result?: Json;
  tool_call_id?: string;
  artifact_id?: string;
  content_type?: string;
}
interface Message {
  role: "system" | "user" | "assistant" | "tool";
  content: Block[];
}
interface ToolSpec {
  name: string;
  description: string;
  input_schema: Json;
}
interface TaskInput {
  session_id: string;
  task_id: string;
  messages: Message[];
  tools: ToolSpec[];
  instructions?: { name: string; text: string }[];
  runtime_config?: { system_prompt?: string };
  model?: string | null;
}
interface ErrorInfo {
  code: string;
  message: string;
  retryable: boolean;
}
interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

const DESCRIPTION = {
  protocol_version: 1,
  name: "small-agent-ts",
  version: "1.0",
  wire: "chat",
  options: { system_prompt: "Said to the model before all else." },
  // All that is not named has the contract's default: this agent can do it.
  capabilities: {
    input_capture: "exact",
    auth_model: "api_key",
    instruction_files: ["AGENTS.md"],
  },
};

// --- JSON-RPC ----------------------------------------------------------------------------------------

class RpcError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly data?: Json,
  ) {
    super(message);
  }
}

const waiting = new Map<Id, { resolve: (result: Json) => void; reject: (error: Error) => void }>();
let lastId = 0;

async function send(message: object): Promise<void> {
  if (!process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n")) {
    await new Promise<void>((then) => process.stdout.once("drain", then));
  }
}

function ask(method: string, params: object): Promise<Json> {
  const id = ++lastId;
  const answer = new Promise<Json>((resolve, reject) => waiting.set(id, { resolve, reject }));
  void send({ id, method, params });
  return answer;
}

async function take(line: string): Promise<void> {
  const { id, method, params, result, error } = JSON.parse(line);
  if (method === undefined) {
    const asked = waiting.get(id);
    waiting.delete(id);
    if (error !== undefined) asked?.reject(new RpcError(error.code, error.message, error.data));
    else asked?.resolve(result);
  } else if (id === undefined) {
    if (method === "pull") tasks.get(params.task_id)?.pull(params.items);
  } else {
    try {
      await send({ id, result: await handle(method, params) });
    } catch (failure) {
      const { code = -32603, data = undefined } = failure instanceof RpcError ? failure : {};
      await send({ id, error: { code, message: String((failure as Error).message), data } });
    }
  }
}

// --- what the engine asks ----------------------------------------------------------------------------

const tasks = new Map<string, AgentTask>();

async function handle(method: string, params: Json): Promise<Json> {
  const task = tasks.get(params.task_id);
  switch (method) {
    case "initialize":
      if (!params.protocol_versions.includes(1)) throw new RpcError(-32602, "This adapter speaks version 1.");
      return DESCRIPTION;
    case "check_available":
      return { ok: true };
    case "start_task": {
      const started = await AgentTask.start(params.task, params.items);
      tasks.set(params.task.task_id, started);
      void started.run();
      return {};
    }
    case "send_tool_result": {
      const { result, is_error } = params.reply;
      task?.reply(params.call, (is_error ? "Error: " : "") + textOf(result));
      return {};
    }
    case "send_tool_denied":
      task?.reply(params.call, `Denied: ${params.reason}`);
      return {};
    case "steer":
      task?.steered.push(...params.messages);
      return {};
    case "stop":
      task?.stop();
      return {};
    case "close":
      task?.stop();
      tasks.delete(params.task_id);
      return {};
    case "close_session":
      return {};
    default:
      throw new RpcError(-32601, `There is no ${method} here.`);
  }
}

// --- a task --------------------------------------------------------------------------------------------

class AgentTask {
  readonly steered: Message[] = [];
  private readonly stopping = new AbortController();
  private readonly replies = new Map<string, (text: string) => void>();
  private readonly names: Map<string, string>;
  private wake = (): void => {};

  private constructor(
    private readonly task: TaskInput,
    private readonly url: string,
    private readonly messages: Json[],
    private credit: number,
  ) {
    this.names = new Map(task.tools.map((tool) => [wireName(tool.name), tool.name]));
  }

  static async start(task: TaskInput, credit: number): Promise<AgentTask> {
    const { url } = await ask("model_endpoint", { task_id: task.task_id, sources: { names: ["AGENTS.md"] } });
    const head = [task.runtime_config?.system_prompt ?? PROMPT];
    for (const file of task.instructions ?? []) {
      head.push(`From ${file.name} of the workspace:\n\n${file.text.trim()}`);
    }
    const messages: Json[] = head.map((content) => ({ role: "system", content }));
    for (const message of task.messages) messages.push(...(await said(message, task.task_id)));
    return new AgentTask(task, url, messages, credit);
  }

  pull(items: number): void {
    this.credit += items;
    this.wake();
  }

  stop(): void {
    this.stopping.abort();
    this.wake();
    for (const answered of this.replies.values()) answered("");
  }

  reply(call: { runtime_tool_call_id?: string }, text: string): void {
    this.replies.get(call.runtime_tool_call_id ?? "")?.(text);
  }

  /** Work until the model calls nothing. Whatever happens, the last item says how it ended. */
  async run(): Promise<void> {
    try {
      await this.item({ type: "identified", model: this.model });
      for (let number = 0; ; number++) {
        const error = await this.turn(number);
        if (this.stopped) return await this.item({ type: "finished", stop_reason: "stopped" });
        if (error === "done") return await this.item({ type: "finished", stop_reason: "stop" });
        if (error !== null) return await this.item({ type: "failed", error });
      }
    } catch (failure) {
      await this.item({ type: "failed", error: problem("INTERNAL", String(failure), false) });
    }
  }

  private get stopped(): boolean {
    return this.stopping.signal.aborted;
  }

  private get model(): string {
    return this.task.model ?? MODEL;
  }

  /** Send one item of the task, as soon as the engine takes one. */
  private async item(item: object): Promise<void> {
    while (this.credit === 0) await new Promise<void>((then) => (this.wake = then));
    this.credit--;
    await send({ method: "item", params: { task_id: this.task.task_id, item } });
  }

  /** Ask the model once and have its calls done. Null if there is more to do. */
  private async turn(number: number): Promise<ErrorInfo | "done" | null> {
    const answer = new Answer(`${this.task.task_id}.${number}`);
    const error = await this.ask(answer);
    if (error !== null || this.stopped) return error;
    const content = answer.content();
    await this.item({ type: "model.output.completed", payload: { message_id: answer.messageId, content } });
    this.messages.push(answer.asMessage());
    if (answer.calls.length === 0) return "done";
    const replies = answer.calls.map((call) => new Promise<string>((then) => this.replies.set(call.id, then)));
    for (const [index, call] of answer.calls.entries()) await this.announce(answer, index, call);
    const texts = await Promise.all(replies);
    if (this.stopped) return null;
    for (const [index, call] of answer.calls.entries()) {
      this.replies.delete(call.id);
      this.messages.push({ role: "tool", tool_call_id: call.id, content: texts[index] });
    }
    for (const message of this.steered.splice(0)) {
      this.messages.push(...(await said(message, this.task.task_id)));
    }
    return null;
  }

  private async announce(answer: Answer, index: number, call: ToolCall): Promise<void> {
    await this.item({
      type: "tool.announced",
      name: this.names.get(call.name) ?? call.name,
      input: parsed(call.arguments || "{}"),
      runtime_tool_call_id: call.id,
      message_id: answer.messageId,
      index,
      origin: "stream",
    });
  }

  /** Ask the model, and again if that may help. Null if it has answered. */
  private async ask(answer: Answer): Promise<ErrorInfo | null> {
    for (let left = TRIES - 1; ; left--) {
      let error: ErrorInfo | null = null;
      let pauseS = 0;
      try {
        const response = await fetch(`${this.url}/v1/chat/completions`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(this.body()),
          signal: this.stopping.signal,
        });
        if (response.ok) await this.words(answer, response);
        else {
          error = failure(response, parsed(await response.text()));
          pauseS = Number(response.headers.get("retry-after") ?? 0);
        }
      } catch (broken) {
        error = problem("MODEL_ERROR", `The answer of the model broke off (${(broken as Error).name}).`, true);
      }
      if (error === null || this.stopped) return null;
      if (answer.blocks.length > 0) {
        const payload = { block_ids: answer.blocks, reason: "The answer broke off." };
        await this.item({ type: "model.output.retracted", payload });
        answer.forget();
      }
      if (left === 0 || !error.retryable) return error;
      await new Promise((then) => setTimeout(then, pauseS * 1000));
    }
  }

  private async words(answer: Answer, response: Response): Promise<void> {
    for await (const line of lines(response.body as unknown as AsyncIterable<Uint8Array>)) {
      for (const payload of answer.take(line)) await this.item({ type: "model.output.delta", payload });
      if (answer.ended) return;
    }
    throw new Error("the stream ended before the answer did");
  }

  private body(): object {
    const tools = this.task.tools.map((tool) => ({
      type: "function",
      function: { name: wireName(tool.name), description: tool.description, parameters: tool.input_schema },
    }));
    return {
      model: this.model,
      messages: this.messages,
      stream: true,
      stream_options: { include_usage: true },
      ...(tools.length > 0 ? { tools } : {}),
    };
  }
}

/** One answer of the model, as it comes. */
class Answer {
  readonly calls: ToolCall[] = [];
  ended = false;
  private readonly texts = new Map<"text" | "reasoning", string>();
  private tries = 1;

  constructor(readonly messageId: string) {}

  forget(): void {
    this.calls.length = 0;
    this.texts.clear();
    this.ended = false;
    this.tries++;
  }

  get blocks(): string[] {
    return [...this.texts.keys()].map((kind) => this.block(kind));
  }

  /** Take a line of the stream. Return the new words, as payloads of deltas. */
  take(line: string): object[] {
    if (!line.startsWith("data:")) return [];
    const data = line.slice(5).trim();
    if (data === "[DONE]") this.ended = true;
    const deltas: object[] = [];
    for (const { delta } of this.ended ? [] : (JSON.parse(data).choices ?? [])) {
      if (delta?.reasoning_content) deltas.push(this.add("reasoning", delta.reasoning_content));
      if (delta?.content) deltas.push(this.add("text", delta.content));
      for (const piece of delta?.tool_calls ?? []) this.addCall(piece);
    }
    return deltas;
  }

  content(): Block[] {
    return [...this.texts].map(([type, text]) => ({ type, text }));
  }

  asMessage(): object {
    const tool_calls = this.calls.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
    const content = this.texts.get("text") ?? null;
    return { role: "assistant", content, ...(tool_calls.length > 0 ? { tool_calls } : {}) };
  }

  private add(kind: "text" | "reasoning", delta: string): object {
    this.texts.set(kind, (this.texts.get(kind) ?? "") + delta);
    return { kind: `${kind}_delta`, block_id: this.block(kind), message_id: this.messageId, delta };
  }

  private addCall(piece: Json): void {
    const call = (this.calls[piece.index] ??= { id: "", name: "", arguments: "" });
    call.id = piece.id ?? call.id;
    call.name += piece.function?.name ?? "";
    call.arguments += piece.function?.arguments ?? "";
  }

  private block(kind: string): string {
    return `${this.messageId}.${this.tries}.${kind}`;
  }
}

// --- the conversation in the model's format ----------------------------------------------------------

async function said(message: Message, taskId: string): Promise<Json[]> {
  if (message.role === "tool") {
    return message.content
      .filter((block) => block.type === "tool_result")
      .map((block) => ({ role: "tool", tool_call_id: block.tool_call_id, content: textOf(block.result) }));
  }
  if (message.role === "assistant") {
    const content = message.content.map((block) => block.type === "reasoning" ? "" : (block.text ?? block.code ?? "")).join("");
    const tool_calls = message.content
      .filter((block) => block.type === "tool_use")
      .map((block) => ({
        id: block.tool_call_id,
        type: "function",
        function: { name: wireName(block.name ?? ""), arguments: JSON.stringify(block.input) },
      }));
    return [{ role: "assistant", content: content || null, ...(tool_calls.length > 0 ? { tool_calls } : {}) }];
  }
  const parts: Json[] = [];
  for (const block of message.content) {
    if (block.type === "text") parts.push({ type: "text", text: block.text });
    if (block.type === "artifact_ref") {
      const { data } = await ask("read_artifact", { task_id: taskId, artifact_id: block.artifact_id });
      parts.push(attached(block, data));
    }
  }
  return [{ role: message.role, content: parts }];
}

function attached(block: Block, data: string): object {
  if (block.content_type?.startsWith("image/")) {
    return { type: "image_url", image_url: { url: `data:${block.content_type};base64,${data}` } };
  }
  return { type: "text", text: `${block.name ?? "A file"}:\n\n${Buffer.from(data, "base64").toString("utf8")}` };
}

function failure(response: Response, body: Json): ErrorInfo {
  const words = body?.error?.message ?? `The provider answered with status ${response.status}.`;
  if (body?.error?.code === "context_length_exceeded") {
    return problem("CONTEXT_TOO_LARGE", `${words} Compact the session, then start the task again.`, false);
  }
  if (response.status === 401 || response.status === 403) {
    return problem("AUTH_FAILED", `${words} Check the key that the gateway has.`, false);
  }
  const again = response.headers.get("x-should-retry") !== "false";
  if (response.status === 429) return problem("RATE_LIMITED", words, again);
  return problem("MODEL_ERROR", words, again && response.status >= 500);
}

function problem(code: string, message: string, retryable: boolean): ErrorInfo {
  return { code, message, retryable };
}

function parsed(text: string): Json {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function textOf(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function wireName(name: string): string {
  return name.replaceAll(".", "_");
}

async function* lines(stream: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of stream) {
    const pieces = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = pieces.pop() ?? "";
    yield* pieces;
  }
  if (rest !== "") yield rest;
}

for await (const line of lines(process.stdin)) {
  if (line !== "") void take(line);
}
process.exit(0);
