-- DELETEs of the objects 1 .. BENCH_COUNT that `put.lua` with one thread made, each once. What is asked beyond them, until
-- the last answer has come and the thread stops, is a HEAD of the container.
local total = tonumber(os.getenv("BENCH_COUNT"))
local asked, answered = 0, 0
function init()
  wrk.headers["X-Auth-Token"] = os.getenv("BENCH_TOKEN")
end
function request()
  asked = asked + 1
  if asked > total then return wrk.format("HEAD", os.getenv("BENCH_PATH")) end
  return wrk.format("DELETE", string.format("%s/0-%d", os.getenv("BENCH_PATH"), asked))
end
function response(status)
  answered = answered + 1
  if answered >= total then wrk.thread:stop() end
end
