// Serves the sample pages (cargo run --example preview) under the portal's own content security policy, and whatever
// else a test wants to answer itself.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import path from "node:path";

import { root } from "./browser.mjs";

/** Where the samples are. */
export const folder = path.join(root, "var", "preview");

const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };
/** The portal's own policy. */
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; " +
  "form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/** Answers with a page of a test's own, under the same policy. */
export function answerPage(response, html) {
  response.writeHead(200, { "content-type": "text/html; charset=utf-8", "content-security-policy": POLICY }).end(html);
}

/** Starts the server. `answer(request, response, path)` goes first and says whether it took the request. */
export async function serve(answer = () => false) {
  const server = createServer(async (request, response) => {
    const name = new URL(request.url, "http://x").pathname;
    if (await answer(request, response, name)) return;
    try {
      const body = await readFile(path.join(folder, path.normalize(name)));
      response.writeHead(200, { "content-type": `${TYPES[path.extname(name)]}; charset=utf-8`, "content-security-policy": POLICY });
      response.end(body);
    } catch {
      response.writeHead(204).end();
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
