// Vercel's AI SDK with its provider for what is like OpenAI.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, streamText, tool } from "ai";
import { z } from "zod";

import { chatModel, chatUrl, embeddingModel, embeddingUrl, key, question, raised, run, texts } from "./cases.mjs";

const provider = (baseURL) =>
  createOpenAICompatible({ name: "gateway", baseURL, apiKey: key, supportsStructuredOutputs: true, includeUsage: true });
const model = provider(chatUrl)(chatModel);
const ask = { model, prompt: question, temperature: 0, maxOutputTokens: 12, maxRetries: 0 };
const weather = tool({ description: "The weather of a place", inputSchema: z.object({ place: z.enum(["sea", "land"]) }) });

await run({
  async chat_whole() {
    const { text, usage } = await generateText(ask);
    return [text, usage.outputTokens];
  },
  async chat_stream() {
    const stream = streamText(ask);
    let text = "";
    for await (const part of stream.textStream) text += part;
    return [text, (await stream.usage).totalTokens];
  },
  async tools() {
    const choice = { type: "tool", toolName: "weather" };
    const { toolCalls } = await generateText({ ...ask, maxOutputTokens: 60, tools: { weather }, toolChoice: choice });
    return toolCalls.map((call) => [call.toolName, call.input]);
  },
  async structured() {
    const schema = z.object({ answer: z.enum(["yes", "no"]) });
    return (await generateObject({ ...ask, maxOutputTokens: 30, schema })).object;
  },
  async completions() {
    return (await generateText({ ...ask, model: provider(chatUrl).completionModel(chatModel) })).text;
  },
  async embeddings() {
    const embedder = provider(embeddingUrl).textEmbeddingModel(embeddingModel);
    return (await embedMany({ model: embedder, values: texts, maxRetries: 0 })).embeddings;
  },
  async asynchronous() {
    const answers = await Promise.all(Array.from({ length: 8 }, () => generateText(ask)));
    return answers[0].text;
  },
  async left_early() {
    const leaving = new AbortController();
    const stream = streamText({ ...ask, maxOutputTokens: 500, abortSignal: leaving.signal });
    for await (const part of stream.textStream) {
      if (part.length) leaving.abort();
    }
    return (await generateText(ask)).text;
  },
  async unknown_model() {
    return raised(() => generateText({ ...ask, model: provider(chatUrl)("nobody") }));
  },
  async bad_parameter() {
    return raised(() => generateText({ ...ask, temperature: -3 }));
  },
});
