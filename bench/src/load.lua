-- Headers come from a file, so that a token is in nobody's process list; figures leave as one line of JSON.
for line in io.lines(os.getenv("EIRENE_BENCH_HEADERS")) do
  local name, value = line:match("^([^:]+): (.*)$")
  wrk.headers[name] = value
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"duration_us":%d,"errors":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
