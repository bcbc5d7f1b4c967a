-- Bursar's gate in Slurm: job_submit/lua for 22.05 and later. Install it as job_submit.lua beside slurm.conf, with
-- JobSubmitPlugins=lua in it. What is governed stands in the file bursar.gate beside this one, which Bursar writes;
-- it is read anew when it has changed, so nothing has to be told of that. docs/slurm.md has the whole story.
--
-- In a governed partition a job enters on hold, with what was declared for it checked and written, in normal form,
-- into its AdminComment together with a tag: a name for it that is never given again (ids of jobs are). Its user
-- cannot undo that. Jobs of other partitions are not touched.

local MARK = "bursar:1"
local FOLDER = string.match(debug.getinfo(1, "S").source, "^@(.*/)[^/]*$") or "/etc/slurm/"
local GATE = FOLDER .. "bursar.gate"

-- ---- what is governed

local gate_text, gate = nil, nil

-- Lines of words: "uid 1001", "partition gpu horizon=604800 min-runtime=0", "budget lab/vision", "account research".
local function read_gate(text)
    local read = { uids = {}, partitions = {}, budgets = nil, accounts = nil }
    if not string.match(text, "^bursar%-gate 1\n") or not string.match(text, "\nend\n$") then return nil end
    for line in string.gmatch(text, "[^\n]+") do
        local word, rest = string.match(line, "^(%S+)%s*(.*)$")
        if word == "uid" then
            local uid = tonumber(rest)
            if not uid then return nil end
            read.uids[uid] = true
        elseif word == "partition" then
            local name = string.match(rest, "^(%S+)")
            if not name then return nil end
            local settings = {}
            for key, value in string.gmatch(rest, "%s([%a%-]+)=(%d+)") do settings[key] = tonumber(value) end
            read.partitions[name] = settings
        elseif word == "budget" then
            read.budgets = read.budgets or {}
            read.budgets[rest] = true
        elseif word == "account" then
            read.accounts = read.accounts or {}
            read.accounts[rest] = true
        elseif word ~= "bursar-gate" and word ~= "site" and word ~= "end" then
            return nil
        end
    end
    return read
end

-- The table as it is now; nil where Bursar governs nothing; false if it cannot be read and never could.
local function current_gate()
    local file = io.open(GATE, "r")
    if not file then
        gate_text, gate = nil, nil
        return nil
    end
    local text = file:read("*a")
    file:close()
    if text == gate_text then return gate end
    local read = text and read_gate(text)
    if read then
        gate_text, gate = text, read
    else
        slurm.log_error("bursar: %s is damaged", GATE)
        if gate == nil then return false end
    end
    return gate
end

-- ---- declarations

local UNITS = { s = 1, m = 60, h = 3600, d = 86400 }

-- "8h", "1h30m"; a bare number is not taken, since --time means minutes by it and others seconds.
local function seconds_of(text)
    local total, rest = 0, text
    if text == "0" then return 0 end
    repeat
        local number, unit, more = string.match(rest, "^(%d+)([smhd])(.*)$")
        if not number or #number > 9 then return nil end
        total = total + tonumber(number) * UNITS[unit]
        rest = more
    until rest == ""
    return total
end

local WORDS = { yes = "1", ["1"] = "1", no = "0", ["0"] = "0" }

-- Takes "min-runtime=8h;resumable;budget=a/b" into declared; says what is wrong, if something is.
local function declare(text, declared)
    for item in string.gmatch(text, "[^;]+") do
        item = string.match(item, "^%s*(.-)%s*$")
        local key, value = string.match(item, "^([%w%-]+)%s*=%s*(.*)$")
        if not key then key, value = item, nil end
        if item == "" then
            -- Nothing between two semicolons.
        elseif key == "min-runtime" then
            local seconds = value and seconds_of(value)
            if not seconds then return "min-runtime takes a time such as 30m, 8h or 1d12h" end
            declared["min-runtime"] = seconds
        elseif key == "resumable" then
            local word = WORDS[value or "yes"]
            if not word then return "resumable is yes or no" end
            declared.resumable = word
        elseif key == "budget" then
            if not value or not string.match(value, "^[%w%._/%-]+$") then return "budget takes the name of a budget" end
            declared.budget = value
        else
            local shown = string.gsub(string.sub(item, 1, 60), "[^%w%p ]", "?")
            return "'" .. shown .. "' is no declaration: min-runtime=TIME, resumable and budget=NAME are, with ';' between them"
        end
    end
    return nil
end

-- The lines "#BURSAR ..." of a script, above its first command.
local function declare_by_script(script, declared)
    local count = 0
    for line in string.gmatch(script, "[^\n]*") do
        count = count + 1
        if line ~= "" and string.sub(line, 1, 1) ~= "#" or count > 1000 then break end
        local text = string.match(line, "^#BURSAR%s+(.*)$")
        local wrong = text and declare(text, declared)
        if wrong then return wrong end
    end
    return nil
end

-- The options --min-runtime, --resumable and --budget, where spank_bursar.so is installed.
local function declare_by_options(environment, declared)
    for _, entry in pairs(environment) do
        local key, value = string.match(tostring(entry), "BURSAR_DECLARED_([A-Z_]+)=(.*)$")
        if key then
            local wrong = declare(string.gsub(string.lower(key), "_", "-") .. "=" .. value, declared)
            if wrong then return wrong end
        end
    end
    return nil
end

local function declaration_of(job)
    local declared = {}
    local wrong = job.script and declare_by_script(job.script, declared)
    wrong = wrong or (job.comment and declare(job.comment, declared))
    wrong = wrong or (job.spank_job_env and declare_by_options(job.spank_job_env, declared))
    return declared, wrong
end

-- ---- submission

local function refuse(sentence)
    slurm.log_user("bursar: %s", sentence)
    return slurm.ERROR
end

local function tag()
    local random = io.open("/dev/urandom", "rb")
    if not random then return nil end
    local bytes = random:read(8)
    random:close()
    local hex = string.gsub(bytes, ".", function(byte) return string.format("%02x", string.byte(byte)) end)
    return string.format("%d.%s", os.time(), hex)
end

-- The partitions that a job names; the default one, if none.
local function partitions_of(job, all)
    local names = {}
    if job.partition then
        for name in string.gmatch(job.partition, "[^,]+") do names[#names + 1] = name end
    else
        for name, partition in pairs(all) do
            if partition.flag_default == 1 then names[#names + 1] = name end
        end
    end
    return names
end

-- How many tasks of an array may run at once: "1-10%2".
local function throttle_of(job)
    return job.array_inx and string.match(job.array_inx, "%%(%d+)$")
end

-- What Bursar decides cannot be asked for, and what it does not know is not taken: better said at once than met later.
local function not_for_us(job)
    if job.priority == 0 then return "Bursar decides when a job starts, and --hold has no meaning here: use --begin, or submit it later" end
    if job.req_nodes or job.exc_nodes then return "Bursar decides where a job runs: leave out -w and -x" end
    local offset = job.het_job_offset
    if offset and offset ~= slurm.NO_VAL then return "a heterogeneous job cannot be governed: submit its parts as jobs of their own" end
    local gpus = false
    for _, field in ipairs({ "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task" }) do
        gpus = gpus or string.find(job[field] or "", "gpu", 1, true)
    end
    if not gpus then return "ask for GPUs (--gpus): work without any belongs into another partition" end
    return nil
end

function slurm_job_submit(job, all, uid)
    local gate = current_gate()
    if gate == nil then return slurm.SUCCESS end
    if gate == false then return refuse("the table of what Bursar governs cannot be read; tell your administrator") end
    local names, governed = partitions_of(job, all), nil
    for _, name in ipairs(names) do governed = governed or gate.partitions[name] end
    if not governed then return slurm.SUCCESS end
    if #names > 1 then return refuse("name one partition: Bursar governs one of these") end

    local declared, wrong = {}, nil
    -- Work that Bursar submits itself says by which word it is known. Who makes such a word up gains nothing: the job is on
    -- hold, and Bursar cancels what it does not know.
    local order = job.comment and string.match(job.comment, "^bursar%-order=([%w]+)$")
    if not order then
        wrong = not_for_us(job)
        if wrong then return refuse(wrong) end
        declared, wrong = declaration_of(job)
        if wrong then return refuse(wrong) end
    end
    local least = declared["min-runtime"] or (order and 0) or governed["min-runtime"] or 0
    if governed.horizon and least > governed.horizon then
        return refuse(string.format("min-runtime is at most %d s here", governed.horizon))
    end
    local limit = job.time_limit
    if limit == slurm.NO_VAL and all[names[1]] then limit = all[names[1]].default_time or limit end
    if limit ~= slurm.NO_VAL and limit ~= slurm.INFINITE and least > limit * 60 then
        if not declared["min-runtime"] then
            least = limit * 60
        else
            return refuse("min-runtime is longer than --time lets the job run")
        end
    end
    if declared.budget and gate.budgets and not gate.budgets[declared.budget] then
        return refuse("there is no budget '" .. declared.budget .. "'")
    end
    local account = job.account or job.default_account
    if not order and not declared.budget and gate.accounts and not (account and gate.accounts[account]) then
        return refuse("account '" .. tostring(account) .. "' has no budget; name one with --account or budget=NAME")
    end
    local name = tag()
    if not name then return refuse("no random numbers on the controller; tell your administrator") end

    local resumable = declared.resumable or tostring(governed.resumable or 0)
    local parts = { MARK, "tag=" .. name, "min-runtime=" .. string.format("%d", least), "resumable=" .. resumable }
    if declared.budget then parts[#parts + 1] = "budget=" .. declared.budget end
    if throttle_of(job) then parts[#parts + 1] = "throttle=" .. throttle_of(job) end
    if order then parts[#parts + 1] = "order=" .. order end
    job.admin_comment = table.concat(parts, ";")
    -- Slurm itself may start again only what can go on from where it was.
    job.requeue = tonumber(resumable)
    job.priority = 0
    return slurm.SUCCESS
end

-- ---- changes

-- Numbers that say "not asked for", whatever the width of the field; for times it is 0.
local function asked(name, value)
    if name == "begin_time" and value == 0 then return false end
    return value ~= nil and value ~= slurm.NO_VAL and value ~= slurm.NO_VAL64 and value ~= slurm.NO_VAL16 and value ~= slurm.NO_VAL8
end

-- Slurm 22.05 shows a user no sentence here, so it goes to the log of slurmctld; "Access/permission denied" is shown.
local ACCESS_DENIED = 2002

local function deny(sentence)
    slurm.log_info("bursar: a change was denied: %s", sentence)
    return ACCESS_DENIED
end

local FIXED = {
    { "priority", "Bursar decides when a job starts: it can be neither held, released nor moved up by hand" },
    { "nice", "Bursar decides the order of jobs: nice has no meaning here" },
    { "comment", "what was declared is fixed with the submission: cancel the job and submit it again" },
    { "requeue", "what was declared is fixed with the submission: cancel the job and submit it again" },
    { "begin_time", "the time to begin is fixed with the submission: cancel the job and submit it again" },
    { "req_nodes", "Bursar decides where a job runs" },
    { "exc_nodes", "Bursar decides where a job runs" },
    { "account", "the account is fixed with the submission: cancel the job and submit it again" },
    { "min_nodes", "the size of a job is fixed with the submission: cancel the job and submit it again" },
    { "max_nodes", "the size of a job is fixed with the submission: cancel the job and submit it again" },
    { "tres_per_job", "the size of a job is fixed with the submission: cancel the job and submit it again" },
    { "tres_per_node", "the size of a job is fixed with the submission: cancel the job and submit it again" },
    { "tres_per_task", "the size of a job is fixed with the submission: cancel the job and submit it again" },
}

function slurm_job_modify(job, record, all, uid)
    local gate = current_gate()
    if not gate or uid == 0 or gate.uids[uid] then return slurm.SUCCESS end
    if job.partition then
        for name in string.gmatch(job.partition, "[^,]+") do
            if gate.partitions[name] and record.partition ~= name then
                return deny("Bursar governs partition " .. name .. ": submit the job there")
            end
        end
    end
    if not (record.partition and gate.partitions[record.partition]) then return slurm.SUCCESS end
    if job.partition and job.partition ~= record.partition then
        return deny("a job stays in the partition that Bursar governs: cancel the job and submit it again")
    end
    -- What its user put on hold before anything was governed stays his until he releases it.
    local ours = string.find(record.admin_comment or "", MARK, 1, true)
    for _, fixed in ipairs(FIXED) do
        if asked(fixed[1], job[fixed[1]]) and (ours or fixed[1] ~= "priority") then return deny(fixed[2]) end
    end
    local limit, before = job.time_limit, record.time_limit
    if asked("time_limit", limit) and asked("time_limit", before) and limit > before then
        return deny("the time limit can be lowered only")
    end
    return slurm.SUCCESS
end

return slurm.SUCCESS
