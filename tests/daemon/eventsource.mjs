// A client of a session's stream that is not ours: `node eventsource.mjs URL`. It prints the id and the type of every
// event, one a line, and ends with the task.
import { EventSource } from "eventsource";

const ENDS = new Set(["task.completed", "task.failed", "task.stopped"]);
const source = new EventSource(process.argv[2]);

source.onmessage = ({ lastEventId, data }) => {
  const { seq, type } = JSON.parse(data);
  process.stdout.write(`${lastEventId} ${seq} ${type}\n`);
  if (ENDS.has(type)) source.close();
};
source.onerror = ({ code, message }) => {
  if (source.readyState !== EventSource.CLOSED) return; // it comes back by itself
  process.stderr.write(`${code} ${message}\n`);
  process.exitCode = 1;
};
