// OpenAI's SDK for Node.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { chatModel, chatUrl, check, embeddingModel, embeddingUrl, key, question, raised, run, texts } from "./cases.mjs";

const options = { apiKey: key, maxRetries: 0, timeout: 60_000 };
const chat = new OpenAI({ baseURL: chatUrl, ...options });
const embedding = new OpenAI({ baseURL: embeddingUrl, ...options });
const ask = { model: chatModel, messages: [{ role: "user", content: question }], temperature: 0, max_tokens: 12 };
const place = { type: "string", enum: ["sea", "land"] };
const parameters = { type: "object", properties: { place }, required: ["place"], additionalProperties: false };
const tools = [{ type: "function", function: { name: "weather", parameters } }];
const toolChoice = { type: "function", function: { name: "weather" } };

await run({
  async models() {
    const listed = [];
    for await (const model of chat.models.list()) listed.push(model.id);
    check(listed.includes(chatModel), "the model is listed");
    return "listed";
  },
  async chat_whole() {
    const answer = await chat.chat.completions.create(ask);
    return [answer.choices[0].message.content, answer.choices[0].finish_reason, answer.usage.completion_tokens];
  },
  async chat_stream() {
    let text = "";
    let usage;
    for await (const chunk of await chat.chat.completions.create({
      ...ask,
      stream: true,
      stream_options: { include_usage: true },
    })) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    return [text, usage.total_tokens];
  },
  async tools() {
    const answer = await chat.chat.completions.create({ ...ask, max_tokens: 60, tools, tool_choice: toolChoice });
    return answer.choices[0].message.tool_calls[0].function.arguments;
  },
  async tools_stream() {
    let text = "";
    const stream = await chat.chat.completions.create({
      ...ask,
      max_tokens: 60,
      tools,
      tool_choice: toolChoice,
      stream: true,
    });
    for await (const chunk of stream) {
      for (const call of chunk.choices[0]?.delta.tool_calls ?? []) text += call.function.arguments ?? "";
    }
    return text;
  },
  async structured() {
    const format = zodResponseFormat(z.object({ answer: z.enum(["yes", "no"]) }), "answer");
    const answer = await chat.chat.completions.parse({ ...ask, max_tokens: 30, response_format: format });
    return answer.choices[0].message.parsed.answer;
  },
  async completions() {
    const answer = await chat.completions.create({ model: chatModel, prompt: "one", temperature: 0, max_tokens: 12 });
    return answer.choices[0].text;
  },
  async responses() {
    const body = { model: chatModel, input: question, temperature: 0, max_output_tokens: 12 };
    return (await chat.responses.create(body)).output_text;
  },
  async responses_stream() {
    const types = new Set();
    const body = { model: chatModel, input: question, temperature: 0, max_output_tokens: 12, stream: true };
    for await (const event of await chat.responses.create(body)) types.add(event.type);
    return [...types];
  },
  async embeddings() {
    const answer = await embedding.embeddings.create({ model: embeddingModel, input: texts });
    return answer.data.map((row) => Array.from(row.embedding));
  },
  async asynchronous() {
    const answers = await Promise.all(Array.from({ length: 8 }, () => chat.chat.completions.create(ask)));
    return answers[0].choices[0].message.content;
  },
  async left_early() {
    const stream = await chat.chat.completions.create({ ...ask, max_tokens: 500, stream: true });
    for await (const chunk of stream) {
      check(chunk.choices.length, "the first chunk has a choice");
      break;
    }
    return (await chat.chat.completions.create(ask)).choices[0].message.content;
  },
  async unknown_model() {
    return raised(() => chat.chat.completions.create({ ...ask, model: "nobody" }));
  },
  async bad_parameter() {
    return raised(() => chat.chat.completions.create({ ...ask, temperature: -3 }));
  },
});
