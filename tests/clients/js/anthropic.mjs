// The official Anthropic client for JavaScript: text, thinking, a tool loop, errors and a stream that is left.
// Prints one JSON object: name of a check -> true, or what is wrong.
import { assert, checks, packageOf } from "./checks.mjs";

const { Anthropic, APIError, BadRequestError } = packageOf("@anthropic-ai/sdk");
const client = new Anthropic({ baseURL: process.env.BASE_URL, apiKey: "x", maxRetries: 0 });
const model = process.env.MODEL;
const user = (content) => [{ role: "user", content }];
const textOf = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");

async function toolLoop() {
  const messages = user('Weather? [[call:get_weather {"city":"Paris"}]] [[then:get_weather {"city":"Oslo"}]]');
  const cities = [];
  const tools = [{ name: "get_weather", input_schema: { type: "object", properties: { city: { type: "string" } } } }];
  for (let step = 0; step < 5; step++) {
    const answer = await client.messages.stream({ model, max_tokens: 4000, messages, tools }).finalMessage();
    messages.push({ role: "assistant", content: answer.content });
    const calls = answer.content.filter((block) => block.type === "tool_use");
    if (!calls.length) return { cities, text: textOf(answer) };
    cities.push(...calls.map((call) => call.input.city));
    messages.push({ role: "user", content: calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: "rain" })) });
  }
  throw new Error("the loop has no end");
}

await checks({
  text: async () => {
    const answer = await client.messages.create({ model, max_tokens: 99, messages: user("[[say:hello]]") });
    assert(textOf(answer).trim() === "hello", textOf(answer));
    assert(answer.stop_reason === "end_turn", answer.stop_reason);
  },
  thinking: async () => {
    const thinking = { type: "enabled", budget_tokens: 1024 };
    const answer = await client.messages.stream({ model, max_tokens: 2048, thinking, messages: user("Hello") }).finalMessage();
    assert(answer.content[0].type === "thinking" && answer.content[0].signature, JSON.stringify(answer.content));
  },
  "tool loop": async () => {
    const { cities, text } = await toolLoop();
    assert(JSON.stringify(cities) === '["Paris","Oslo"]', `called for ${cities}`);
    assert(text.trim() === "Tool said: rain", `said ${text}`);
  },
  count: async () => {
    const counted = await client.messages.countTokens({ model, messages: user("Hello") });
    assert(counted.input_tokens > 0, JSON.stringify(counted));
  },
  errors: async () => {
    for (const [status, kind] of [[400, "invalid_request_error"], [404, "not_found_error"], [529, "overloaded_error"]]) {
      const error = await client.messages.create({ model, max_tokens: 9, messages: user(`[[err:${status}]]`) }).then(() => null, (error) => error);
      assert(error instanceof (status === 400 ? BadRequestError : APIError), `${error}`);
      assert(error.status === status && error.type === kind, `${error.status} ${error.type}`);
      assert(error.requestID, "no request id");
    }
  },
  "error in a stream": async () => {
    const stream = client.messages.stream({ model, max_tokens: 99, messages: user("[[miderr]]") });
    const error = await stream.finalMessage().then(() => null, (error) => error);
    assert(error instanceof APIError, `${error}`);
  },
  "stream left": async () => {
    const stream = await client.messages.create({ model, max_tokens: 9000, messages: user("[[pace:50]] [[pad:2000]]"), stream: true });
    for await (const event of stream) if (event.type === "content_block_delta") break;
  },
});
