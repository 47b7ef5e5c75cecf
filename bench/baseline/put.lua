-- PUTs of distinct objects: each thread counts its own names.
local size = tonumber(os.getenv("BENCH_SIZE"))
local body = string.rep("swiftlet", size / 8)
local threads = 0
function setup(thread)
  thread:set("id", threads)
  threads = threads + 1
end
function init()
  wrk.headers["X-Auth-Token"] = os.getenv("BENCH_TOKEN")
  count = 0
end
function request()
  count = count + 1
  return wrk.format("PUT", string.format("%s/%d-%d", os.getenv("BENCH_PATH"), id, count), nil, body)
end
local failed = 0
function response(status)
  if status ~= 201 then failed = failed + 1; wrk.thread:stop() end
end
