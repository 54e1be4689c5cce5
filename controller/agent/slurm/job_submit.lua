-- job_submit.lua of Slurm (JobSubmitPlugins=lua): asks `crux place` where a job of several hosts
-- should run, unless its user has chosen hosts. Needs /etc/crux/place.conf, or the file that
-- CRUX_PLACE_CONF of slurmctld names, with the arguments of `crux place`, for example:
-- --controller 10.0.0.1:9300 --model gpt-24l/A100 --placement crius
local GPUS_PER_HOST = 8

local function place(hosts)
    local file = io.open(os.getenv("CRUX_PLACE_CONF") or "/etc/crux/place.conf")
    if file == nil then
        return nil
    end
    local arguments = file:read("*l")
    file:close()
    local command = "timeout 5 crux place %s --gpus %d --nodelist 2>/dev/null"
    local output = io.popen(string.format(command, arguments, hosts * GPUS_PER_HOST))
    local list = output:read("*l")
    output:close()
    return list
end

function slurm_job_submit(job, partitions, user)
    local hosts = job.min_nodes
    local is_free = job.req_nodes == nil or job.req_nodes == ""
    if is_free and hosts ~= slurm.NO_VAL and hosts > 1 then
        local list = place(hosts)
        if list ~= nil and list ~= "" then
            job.req_nodes = list
        end
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
    return slurm.SUCCESS
end
