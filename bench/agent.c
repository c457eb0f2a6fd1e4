/* A coding agent that costs nothing: it speaks the Agent Client Protocol, version 1, over its pipes, and has no model.

   A prompt with "burst:N:M" in it is answered with N pieces of text, numbered from M on and each a write of its own,
   as agents do it; then the turn ends. So whoever stands between it and a client is what is measured.
   It reads no more JSON than it needs: one message a line, ids that are numbers or plain strings. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void send_all(const char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(STDOUT_FILENO, data, size);
        if (done <= 0) exit(1); /* whoever listened is gone */
        data += done;
        size -= (size_t)done;
    }
}

/* Copy the id of a request as it is written: a number, or a string with its quotation marks. */
static int copy_id(const char *line, char *id, size_t room) {
    const char *at = strstr(line, "\"id\":");
    if (at == NULL) return 0;
    at += 5;
    while (*at == ' ') at++;
    size_t length = *at == '"' ? strcspn(at + 1, "\"") + 2 : strcspn(at, ",} \n");
    if (length >= room) return 0;
    memcpy(id, at, length);
    id[length] = '\0';
    return 1;
}

static void answer(const char *id, const char *result) {
    char line[1024];
    int size = snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":%s,%s}\n", id, result);
    send_all(line, (size_t)size);
}

static void play(const char *prompt) {
    char line[512], *rest;
    const char *order = NULL;
    /* The last one counts: a conversation that is told again has the earlier ones, too. */
    for (const char *at = strstr(prompt, "burst:"); at != NULL; at = strstr(at + 1, "burst:")) order = at + 6;
    if (order == NULL) return;
    long count = strtol(order, &rest, 10), first = *rest == ':' ? strtol(rest + 1, NULL, 10) : 0;
    for (long number = first; number < first + count; number++) {
        int size = snprintf(line, sizeof line,
                            "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"one\","
                            "\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\","
                            "\"text\":\"word%08ld \"}}}}\n",
                            number);
        send_all(line, (size_t)size);
    }
}

int main(void) {
    char *line = NULL, id[128];
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        if (!copy_id(line, id, sizeof id)) continue;
        if (strstr(line, "\"initialize\"") != NULL)
            answer(id, "\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{\"loadSession\":false},"
                       "\"agentInfo\":{\"name\":\"bench\",\"version\":\"1\"},\"authMethods\":[]}");
        else if (strstr(line, "\"session/new\"") != NULL)
            answer(id, "\"result\":{\"sessionId\":\"one\"}");
        else if (strstr(line, "\"session/prompt\"") != NULL) {
            play(line);
            answer(id, "\"result\":{\"stopReason\":\"end_turn\"}");
        } else
            answer(id, "\"error\":{\"code\":-32601,\"message\":\"There is no such method.\"}");
    }
    return 0;
}
