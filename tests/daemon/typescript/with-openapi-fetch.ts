// A client made by openapi-typescript: creates a session, runs a task and reads its events. Its output is its check.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

type Event = components["schemas"]["Event"];
type Terminal = Extract<Event, { type: "task.completed" | "task.failed" | "task.stopped" }>;

const [, , baseUrl = "", workspace = ""] = process.argv;
const client = createClient<paths>({ baseUrl });

function isTerminal(event: Event): event is Terminal {
  return event.type === "task.completed" || event.type === "task.failed" || event.type === "task.stopped";
}

/** Every event tells its own payload by its type. */
function line(event: Event): string {
  switch (event.type) {
    case "session.created":
      return `${event.type} ${event.payload.runtime} ${event.payload.permission_mode}`;
    case "task.completed":
      return `${event.type} ${event.payload.text}`;
    case "tool.call.requested":
      return `${event.type} ${event.payload.name} ${event.payload.class}`;
    case "runtime.notice":
      // @ts-expect-error a notice has no text
      return event.payload.text;
    default:
      return event.type;
  }
}

async function main(): Promise<void> {
  const script = { turns: [{ steps: [{ text: "Hello there." }] }] };
  // Only what is required is given; a free-form map takes any JSON.
  const created = await client.POST("/v1/sessions", {
    body: { runtime: "scripted", workspace, settings: { runtime_config: { script } } },
  });
  if (created.data === undefined) throw new Error(created.error.detail);
  const path = { session_id: created.data.session_id };
  await client.POST("/v1/sessions/{session_id}/tasks", {
    params: { path, header: { "Idempotency-Key": "one" } },
    body: { message: "Go" },
  });
  // @ts-expect-error there is no such mode
  const wrong: components["schemas"]["CreateSession"] = { runtime: "scripted", workspace, permission_mode: "AUTO" };
  void wrong;
  const seen: string[] = [];
  let after = 0;
  for (let ended = false; !ended; ) {
    const query = { after_seq: after, limit: 1, stream: "page" as const };
    const page = await client.GET("/v1/sessions/{session_id}/events", { params: { path, query } });
    if (page.data === undefined) throw new Error(page.error.detail);
    if (typeof page.data === "string") throw new Error("a stream came where a page was asked for");
    for (const event of page.data.events) {
      after = event.seq;
      seen.push(line(event));
      ended = isTerminal(event);
    }
  }
  console.log(seen.join("\n"));
}

main().catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
