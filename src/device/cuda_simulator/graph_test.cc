#include <vector>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

using GraphTest = CudaSimTest;

cuda::Graph CaptureKernels(const Session& cuda, const std::vector<float>& us) {
  EXPECT_EQ(cuStreamBeginCapture_v2(cuda.stream, cuda::kCaptureThreadLocal), cuda::kSuccess);
  for (const float each : us) EXPECT_EQ(cuda.Launch(each, 4), cuda::kSuccess);
  cuda::Graph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(cuda.stream, &graph), cuda::kSuccess);
  return graph;
}

cuda::GraphExec Instantiate(cuda::Graph graph) {
  cuda::GraphExec exec = nullptr;
  EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), cuda::kSuccess);
  return exec;
}

// How long a launch of `exec` takes, in milliseconds.
float TimeOf(const Session& cuda, cuda::GraphExec exec) {
  auto* word = cuda.NewWord();
  EXPECT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
  const auto begin = cuda.Recorded(cuda.stream);
  EXPECT_EQ(cuGraphLaunch(exec, cuda.stream), cuda::kSuccess);
  const auto end = cuda.Recorded(cuda.stream);
  cuda.Settle();
  *word = 1;
  EXPECT_EQ(cuEventSynchronize(end), cuda::kSuccess);
  return cuda.Elapsed(begin, end);
}

TEST_F(GraphTest, LaunchRunsAllNodesEachTime) {
  Run([] {
    const Session cuda;
    const auto exec = Instantiate(CaptureKernels(cuda, {100, 200, 300}));
    EXPECT_FLOAT_EQ(TimeOf(cuda, exec), 0.6F);
    EXPECT_FLOAT_EQ(TimeOf(cuda, exec), 0.6F);
    ASSERT_EQ(cuGraphExecDestroy(exec), cuda::kSuccess);
    EXPECT_EQ(cuGraphLaunch(exec, cuda.stream), cuda::kInvalidValue);
  });
}

TEST_F(GraphTest, NodesTellTheirKernels) {
  Run([] {
    const Session cuda;
    const auto graph = CaptureKernels(cuda, {100, 200});
    cuda::GraphNode nodes[4] = {};
    std::size_t count = 4;
    ASSERT_EQ(cuGraphGetNodes(graph, nodes, &count), cuda::kSuccess);
    ASSERT_EQ(count, 2U);
    GraphNodeType type = kNodeEmpty;
    ASSERT_EQ(cuGraphNodeGetType(nodes[1], &type), cuda::kSuccess);
    EXPECT_EQ(type, kNodeKernel);
    cuda::KernelNodeParams params{};
    ASSERT_EQ(cuGraphKernelNodeGetParams_v2(nodes[1], &params), cuda::kSuccess);
    EXPECT_EQ(params.function, cuda.kernel);
    EXPECT_EQ(params.grid_x, 4U);
    EXPECT_EQ(params.block_x, 1024U);
    EXPECT_EQ(*static_cast<float*>(params.parameters[0]), 200.0F);
    // What is instantiated can be changed node by node; the graph stays.
    const auto exec = Instantiate(graph);
    float us = 700;
    void* parameters[] = {&us};
    params.parameters = parameters;
    ASSERT_EQ(cuGraphExecKernelNodeSetParams_v2(exec, nodes[1], &params), cuda::kSuccess);
    EXPECT_FLOAT_EQ(TimeOf(cuda, exec), 0.8F);
    EXPECT_FLOAT_EQ(TimeOf(cuda, Instantiate(graph)), 0.3F);
    ASSERT_EQ(cuGraphDestroy(graph), cuda::kSuccess);
    EXPECT_EQ(cuGraphNodeGetType(nodes[1], &type), cuda::kInvalidValue);
    EXPECT_FLOAT_EQ(TimeOf(cuda, exec), 0.8F);
  });
}

TEST_F(GraphTest, UpdateTakesAGraphOfTheSameShapeOnly) {
  Run([] {
    const Session cuda;
    const auto exec = Instantiate(CaptureKernels(cuda, {100, 200}));
    GraphUpdateInfo info{};
    ASSERT_EQ(cuGraphExecUpdate_v2(exec, CaptureKernels(cuda, {300, 400}), &info), cuda::kSuccess);
    EXPECT_FLOAT_EQ(TimeOf(cuda, exec), 0.7F);
    EXPECT_EQ(cuGraphExecUpdate_v2(exec, CaptureKernels(cuda, {1, 1, 1}), &info),
              kGraphExecUpdateFailure);
    EXPECT_EQ(info.result, kUpdateTopologyChanged);
    EXPECT_FLOAT_EQ(TimeOf(cuda, exec), 0.7F);
  });
}

TEST_F(GraphTest, GraphsAreAlsoMadeNodeByNode) {
  Run([] {
    const Session cuda;
    cuda::Graph graph = nullptr;
    ASSERT_EQ(cuGraphCreate(&graph, 0), cuda::kSuccess);
    float us = 250;
    void* list[] = {&us};
    cuda::KernelNodeParams params{};
    params.function = cuda.kernel;
    params.grid_x = params.grid_y = params.grid_z = 1;
    params.block_x = params.block_y = params.block_z = 1;
    params.parameters = list;
    cuda::GraphNode first = nullptr;
    cuda::GraphNode second = nullptr;
    ASSERT_EQ(cuGraphAddKernelNode_v2(&first, graph, nullptr, 0, &params), cuda::kSuccess);
    ASSERT_EQ(cuGraphAddKernelNode_v2(&second, graph, &first, 1, &params), cuda::kSuccess);
    EXPECT_FLOAT_EQ(TimeOf(cuda, Instantiate(graph)), 0.5F);
    params.grid_x = 0;
    EXPECT_EQ(cuGraphAddKernelNode_v2(&second, graph, nullptr, 0, &params), cuda::kInvalidValue);
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
