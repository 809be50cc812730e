// Stand-ins for Apple and Google behind a proxy for gorush. They take every push, and print each as a line of JSON.
// Arguments: a file with a key and a certificate.
const { readFileSync } = require("node:fs");
const http = require("node:http");
const http2 = require("node:http2");
const https = require("node:https");

const pem = readFileSync(process.argv[2]);
const options = { key: pem, cert: pem };

function take(answer) {
  return (request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      const body = Buffer.concat(parts);
      const headers = Object.fromEntries(
        Object.entries(request.headers).filter(([name]) => name.startsWith("apns-")),
      );
      console.log(JSON.stringify({ path: request.url, headers, body: JSON.parse(body), bytes: body.length }));
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify(answer));
    });
  };
}

// Apple announces that limit, and its own of a header list.
const apple = http2.createSecureServer({ ...options, settings: { maxHeaderListSize: 8000 } }, take({}));
// gorush's client for Firebase reads HTTP/1 alone behind a proxy.
const google = https.createServer(options, take({ name: "projects/p/messages/1" }));
const proxy = http.createServer((request, response) => {
  // Google's tokens.
  request.resume();
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ access_token: "t", token_type: "Bearer", expires_in: 3600 }));
});
proxy.on("connect", (request, socket) => {
  socket.write("HTTP/1.1 200 OK\r\n\r\n");
  (request.url.includes("apple") ? apple : google).emit("connection", socket);
});
proxy.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ port: proxy.address().port })));
