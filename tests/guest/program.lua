-- What a freshly built Lua is asked to do: its arithmetic, strings, tables, coroutines, files.
local lines = {}
local function say(...)
  lines[#lines + 1] = table.concat({ ... }, " ")
end

local function primes(most)
  return coroutine.wrap(function()
    local composite = {}
    for n = 2, most do
      if not composite[n] then
        coroutine.yield(n)
        for multiple = n * n, most, n do composite[multiple] = true end
      end
    end
  end)
end
local count, last = 0, 0
for prime in primes(20000) do count, last = count + 1, prime end
assert(count == 2262 and last == 19997)
say("primes", count, last)

local words = {}
for word in ("the quick brown fox jumps over the lazy dog"):gmatch("%a+") do words[#words + 1] = word end
table.sort(words, function(a, b) return a:reverse() < b:reverse() end)
say(table.unpack(words))
say(string.format("%.10g %x %q", math.sqrt(2), 1 << 40 | 5, "a\nb"))
assert(select("#", string.unpack("<i4 d s2", string.pack("<i4 d s2", -7, 0.1, "x"))) == 4)

-- FNV-1a, over files of this directory written in pieces, cut and read back.
local function hash(text)
  local sum = 0xcbf29ce484222325
  for n = 1, #text do sum = (sum ~ text:byte(n)) * 0x100000001b3 end
  return string.format("%016x", sum)
end
assert(hash("a") == "af63dc4c8601ec8c")
local name = "written.tmp"
local file = assert(io.open(name, "w+b"))
file:setvbuf("full", 1000)
for n = 1, 3000 do assert(file:write(n, " ", n * n, "\n")) end
assert(file:seek("set", 5000))
assert(file:write("in the middle"))
assert(file:seek("set", 4990))
say("middle", hash(file:read(40)))
file:close()
file = assert(io.open(name, "rb"))
say("whole", hash(file:read("a")))
file:close()
assert(os.rename(name, name .. "2") and not io.open(name) and os.remove(name .. "2"))
local ok, why = pcall(error, { code = 42 })
assert(not ok and why.code == 42)
say("done")
print(table.concat(lines, "\n"))
