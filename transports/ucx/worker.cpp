#include "transports/ucx/worker.hpp"

#if MOELINK_HAVE_UCX

#include <algorithm>
#include <utility>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// A segment of tcp: the largest chunk of a mode, and headers.
constexpr const char* kSegment = "132k";

/// By default UCX cuts what goes over tcp into pieces of 8 KB, which the receiver joins in memory of its own: one
/// more copy, and pages that come and go with every chunk, an eighth of all time. What the user sets stays.
void widen_segments(const UcxLibrary& ucx, ucp_config_t& config) {
  const bool uses_tcp = Environment::process("UCX_TLS").value_or("tcp").find("tcp") != std::string::npos;
  for (const char* name : {"TX_SEG_SIZE", "RX_SEG_SIZE"}) {
    if (!uses_tcp || Environment::process(text("UCX_TCP_", name).c_str())) continue;
    ucx.config_modify(&config, name, kSegment);  // versions that know no such setting go on without
  }
}

/// A peer that leaves in good order breaks its connection, too: it is a failure if something was under way, or when
/// somebody puts to it.
void on_broken(void* endpoint, ucp_ep_h /*handle*/, ucs_status_t status) {
  static_cast<UcxEndpoint*>(endpoint)->status = status;
}

}  // namespace

void check_ucx(const UcxLibrary& ucx, ucs_status_t status, const std::string& what) {
  if (status != UCS_OK) {
    throw Error(ErrorCode::system, text(what, " failed: ", ucx.status_string(status)));
  }
}

UcxWorker::UcxWorker(const UcxLibrary& ucx, const PutOptions& options, unsigned message_id,
                     ucp_am_recv_callback_t on_message, void* arg)
    : ucx_(ucx), endpoints_(static_cast<std::size_t>(options.num_ranks)) {
  try {
    create(options, message_id, on_message, arg);
  } catch (...) {
    destroy();
    throw;
  }
}

UcxWorker::~UcxWorker() { destroy(); }

void UcxWorker::create(const PutOptions& options, unsigned message_id, ucp_am_recv_callback_t on_message, void* arg) {
  ucp_config_t* config = nullptr;
  check_ucx(ucx_, ucx_.config_read(nullptr, nullptr, &config), "reading the UCX_ variables");
  widen_segments(ucx_, *config);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_AM;
  params.estimated_num_eps = options.remotes.size();
  const ucs_status_t status = ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucx_.config_release(config);
  check_ucx(ucx_, status, "starting UCX");
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // set up by one thread, then polled by another
  check_ucx(ucx_, ucx_.worker_create(context_, &worker, &worker_), "making a UCX worker");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = message_id;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = on_message;
  handler.arg = arg;
  check_ucx(ucx_, ucx_.worker_set_am_recv_handler(worker_, &handler), "preparing UCX to receive");
}

void UcxWorker::destroy() noexcept {
  if (worker_ != nullptr && !is_kept_) close_endpoints(/*gently=*/false);
  if (is_kept_) return;
  if (worker_ != nullptr) ucx_.worker_destroy(worker_);
  if (context_ != nullptr) ucx_.cleanup(context_);
}

Bytes UcxWorker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  check_ucx(ucx_, ucx_.worker_get_address(worker_, &address, &length), "asking UCX for its address");
  const auto view = std::as_bytes(std::span(reinterpret_cast<const char*>(address), length));
  Bytes bytes(view.begin(), view.end());
  ucx_.worker_release_address(worker_, address);
  return bytes;
}

void UcxWorker::connect(int rank, std::span<const std::byte> address) {
  UcxEndpoint& end = endpoint(rank);
  end.rank = rank;
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&on_broken, &end};
  check_ucx(ucx_, ucx_.ep_create(worker_, &params, &end.handle), text("connecting to rank ", rank));
}

bool UcxWorker::progress_until(const std::function<bool()>& is_over, const Deadline& deadline) {
  while (!is_over() && !is_kept_ && !deadline.expired()) progress();
  return is_over();
}

void UcxWorker::flush_endpoints() noexcept {
  std::vector<std::pair<UcxEndpoint*, void*>> flushing;
  for (UcxEndpoint& end : endpoints_) {
    if (end.handle == nullptr || !end.was_used || end.status != UCS_OK) continue;
    const ucp_request_param_t params{};
    flushing.emplace_back(&end, ucx_.ep_flush_nbx(end.handle, &params));
  }
  const Deadline deadline = Deadline::after(kUcxPatience);
  for (const auto& [end, request] : flushing) {
    end->is_flushed = UCS_PTR_IS_PTR(request) ? finish(request, deadline, -1) : UCS_PTR_STATUS(request) == UCS_OK;
  }
}

/// By force is what cancels what is under way. UCX 1.13 ends the process if a worker goes with requests, and if a
/// connection that is closed gently, but was never used, is refused meanwhile.
void UcxWorker::close_endpoints(bool gently) noexcept {
  if (gently) flush_endpoints();
  std::vector<std::pair<int, void*>> closing;
  for (UcxEndpoint& end : endpoints_) {
    if (end.handle == nullptr) continue;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = gently && end.is_flushed && end.status == UCS_OK ? 0 : UCP_EP_CLOSE_FLAG_FORCE;
    closing.emplace_back(end.rank, ucx_.ep_close_nbx(end.handle, &params));
    end.handle = nullptr;
  }
  const Deadline deadline = Deadline::after(kUcxPatience);
  for (const auto& [rank, request] : closing) {
    if (UCS_PTR_IS_PTR(request)) finish(request, deadline, rank);
  }
}

/// Whether a request has ended well by then. One that has not ended at all, and is a close with `rank`, would end the
/// process together with the worker.
bool UcxWorker::finish(void* request, const Deadline& deadline, int rank) noexcept {
  const auto is_over = [&] { return ucx_.request_check_status(request) != UCS_INPROGRESS; };
  if (!progress_until(is_over, deadline) && rank >= 0) keep(rank);
  const bool is_good = ucx_.request_check_status(request) == UCS_OK;
  ucx_.request_free(request);
  return is_good;
}

void UcxWorker::keep(int rank) noexcept {
  if (std::exchange(is_kept_, true)) return;
  warn_once(text("UCX has not ended what was under way with rank ", rank, " ", to_string(kUcxPatience),
                 " after the connection was closed; what it holds is kept until the process ends"));
}

}  // namespace moelink

#endif
