-- PUTs of distinct objects: each thread counts its own names. With BENCH_CONTAINERS above 1 they go to so many containers in
-- turn, which are numbered from 0. Names of objects begin with BENCH_NAMES. With BENCH_DELETE_AFTER they expire after so many seconds.
local size = tonumber(os.getenv("BENCH_SIZE"))
local body = string.rep("swiftlet", size / 8)
local names = os.getenv("BENCH_NAMES") or ""
local containers = tonumber(os.getenv("BENCH_CONTAINERS") or "1")
local threads = 0
function setup(thread)
  thread:set("id", threads)
  threads = threads + 1
end
function init()
  wrk.headers["X-Auth-Token"] = os.getenv("BENCH_TOKEN")
  wrk.headers["X-Delete-After"] = os.getenv("BENCH_DELETE_AFTER")
  count = 0
end
function request()
  count = count + 1
  local path = os.getenv("BENCH_PATH")
  if containers > 1 then path = string.format("%s-%d", path, count % containers) end
  return wrk.format("PUT", string.format("%s/%s%d-%d", path, names, id, count), nil, body)
end
local failed = 0
function response(status)
  if status ~= 201 then failed = failed + 1; wrk.thread:stop() end
end
