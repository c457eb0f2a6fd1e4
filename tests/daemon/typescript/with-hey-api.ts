// The same with a client made by @hey-api/openapi-ts, which brings functions along, one for each operation.
import { client } from "./hey/client.gen";
import { createSession, readEvents, startTask } from "./hey/sdk.gen";
import type { Capabilities, CreateSession, Event } from "./hey/types.gen";

const [, , baseUrl = "", workspace = ""] = process.argv;
client.setConfig({ baseUrl });

function line(event: Event): string {
  switch (event.type) {
    case "session.created":
      return `${event.type} ${event.payload.runtime} ${event.payload.permission_mode}`;
    case "task.completed":
      return `${event.type} ${event.payload.text}`;
    case "task.failed":
      return `${event.type} ${event.payload.error.code}`;
    default:
      return event.type;
  }
}

export function steers(capabilities: Capabilities): boolean {
  return capabilities.supports_steer ?? true;
}

async function main(): Promise<void> {
  const script = { turns: [{ steps: [{ text: "Hello there." }] }] };
  const body: CreateSession = { runtime: "scripted", workspace, settings: { runtime_config: { script } } };
  const { data: session } = await createSession({ body, throwOnError: true });
  const path = { session_id: session.session_id };
  await startTask({ path, body: { message: "Go" }, throwOnError: true });
  const seen: string[] = [];
  let after = 0;
  while (!seen.some((said) => said.startsWith("task.completed"))) {
    const query = { after_seq: after, stream: "page" as const };
    const { data: page } = await readEvents({ path, query, throwOnError: true });
    if (typeof page === "string") throw new Error("a stream came where a page was asked for");
    for (const event of page.events) {
      after = event.seq;
      seen.push(line(event));
    }
  }
  console.log(seen.join("\n"));
}

main().catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
