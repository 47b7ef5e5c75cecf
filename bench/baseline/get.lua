-- GETs of the objects 1 .. BENCH_COUNT that `put.lua` with one thread made.
local total = tonumber(os.getenv("BENCH_COUNT"))
function init()
  wrk.headers["X-Auth-Token"] = os.getenv("BENCH_TOKEN")
  math.randomseed(1)
end
function request()
  return wrk.format("GET", string.format("%s/0-%d", os.getenv("BENCH_PATH"), math.random(total)))
end
