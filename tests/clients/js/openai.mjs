// The official OpenAI client for JavaScript: text, tool loops, errors and a stream that is left, over both of its APIs.
// Prints one JSON object: name of a check -> true, or what is wrong.
import { assert, checks, packageOf } from "./checks.mjs";

const { OpenAI, APIError, BadRequestError, NotFoundError, RateLimitError } = packageOf("openai");
const client = new OpenAI({ baseURL: `${process.env.BASE_URL}/v1`, apiKey: "x", maxRetries: 0 });
const model = process.env.MODEL;
const LOOP = 'Weather? [[call:get_weather {"city":"Paris"}]] [[then:get_weather {"city":"Oslo"}]]';
const parameters = { type: "object", properties: { city: { type: "string" } } };
const user = (content) => [{ role: "user", content }];

async function raised(promise, kind, status, code) {
  const error = await promise.then(() => null, (error) => error);
  assert(error instanceof kind, `not a ${kind.name}: ${error}`);
  assert(error.status === status, `status ${error.status}`);
  assert(!code || error.code === code, `code ${error.code}`);
  assert(error.requestID, "no request id");
}

async function chatLoop() {
  const messages = user(LOOP);
  const cities = [];
  const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
  for (let step = 0; step < 5; step++) {
    const answer = await client.chat.completions.stream({ model, messages, tools }).finalChatCompletion();
    const message = answer.choices[0].message;
    messages.push(message);
    if (!message.tool_calls?.length) return { cities, text: message.content };
    for (const call of message.tool_calls) {
      cities.push(JSON.parse(call.function.arguments).city);
      messages.push({ role: "tool", tool_call_id: call.id, content: "rain" });
    }
  }
  throw new Error("the loop has no end");
}

async function responsesLoop() {
  let input = LOOP;
  let previous_response_id;
  const cities = [];
  const tools = [{ type: "function", name: "get_weather", parameters, strict: false }];
  for (let step = 0; step < 5; step++) {
    const answer = await client.responses.stream({ model, input, tools, previous_response_id }).finalResponse();
    const calls = answer.output.filter((item) => item.type === "function_call");
    if (!calls.length) return { cities, text: answer.output_text };
    previous_response_id = answer.id;
    cities.push(...calls.map((call) => JSON.parse(call.arguments).city));
    input = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "rain" }));
  }
  throw new Error("the loop has no end");
}

function looped({ cities, text }) {
  assert(JSON.stringify(cities) === '["Paris","Oslo"]', `called for ${cities}`);
  assert(text.trim() === "Tool said: rain", `said ${text}`);
}

await checks({
  "chat text": async () => {
    const answer = await client.chat.completions.create({ model, messages: user("[[say:hello]]") });
    assert(answer.choices[0].message.content.trim() === "hello", answer.choices[0].message.content);
  },
  "chat tool loop": async () => looped(await chatLoop()),
  "chat errors": async () => {
    const ask = (text) => client.chat.completions.create({ model, messages: user(text) });
    await raised(ask("[[err:400:invalid_prompt]]"), BadRequestError, 400, "invalid_prompt");
    await raised(ask("[[err:429]]"), RateLimitError, 429, "server_overloaded");
    await raised(client.chat.completions.create({ model: "none", messages: user("x") }), NotFoundError, 404);
  },
  "chat error in a stream": async () => {
    const stream = await client.chat.completions.create({ model, messages: user("[[miderr]]"), stream: true });
    const error = await (async () => { for await (const _ of stream); })().then(() => null, (error) => error);
    assert(error instanceof APIError && error.code === "internal_error", `${error}`);
  },
  "chat stream left": async () => {
    const stream = await client.chat.completions.create({ model, messages: user("[[pace:50]] [[pad:2000]]"), stream: true });
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
  },
  "responses text": async () => {
    const answer = await client.responses.stream({ model, input: "[[think]] [[say:hello]]", reasoning: { summary: "auto" } }).finalResponse();
    assert(answer.output_text.trim() === "hello", answer.output_text);
    assert(answer.output[0].type === "reasoning", answer.output[0].type);
  },
  "responses tool loop": async () => looped(await responsesLoop()),
  "responses errors": async () => {
    await raised(client.responses.create({ model, input: "x", truncation: "auto" }), BadRequestError, 400, "unsupported_parameter");
    await raised(client.responses.retrieve("resp_none"), NotFoundError, 404, "response_not_found");
  },
  "responses stream left": async () => {
    const stream = await client.responses.create({ model, input: "[[pace:50]] [[pad:2000]]", stream: true });
    for await (const event of stream) if (event.type === "response.output_text.delta") break;
  },
});
