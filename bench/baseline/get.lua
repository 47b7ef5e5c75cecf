-- GETs of the objects 2 .. BENCH_COUNT that `put.lua` with one thread made (wrk asks for one request that it never sends).
local total = tonumber(os.getenv("BENCH_COUNT"))
function init()
  wrk.headers["X-Auth-Token"] = os.getenv("BENCH_TOKEN")
  math.randomseed(1)
end
function request()
  return wrk.format("GET", string.format("%s/0-%d", os.getenv("BENCH_PATH"), math.random(2, math.max(2, total))))
end
