-- POSTs for grants to store and read below a prefix, for BENCH_CONTAINERS containers in turn.
local containers = tonumber(os.getenv("BENCH_CONTAINERS"))
local requests, count = {}, 0
function init()
  wrk.headers["X-Auth-Token"] = os.getenv("BENCH_TOKEN")
  for number = 1, containers do
    local body = '{"account": "%s", "container": "%s-%d", "operations": ["get", "put"], "prefix": "2026/"}'
    requests[number] = wrk.format("POST", "/v1/grants", nil,
      string.format(body, os.getenv("BENCH_ACCOUNT"), os.getenv("BENCH_CONTAINER"), number - 1))
  end
end
function request()
  count = count + 1
  return requests[count % containers + 1]
end
local failed = 0
function response(status)
  if status ~= 200 then failed = failed + 1; wrk.thread:stop() end
end
