// Headings and small words of the writers.

#include "explain/catalogue.h"

namespace qkv {
namespace {

constexpr Message kMessages[] = {
    {"writer.shape", "shape", "hình dạng", "모양", "形状"},
    {"writer.shown", "shown: {}", "đang hiển thị: {}", "표시: {}", "显示：{}"},
    {"writer.range", "{} {} of {}", "{} {} trên tổng {}", "{} {} (전체 {})", "{} {}（共 {}）"},
    {"writer.and", "; ", "; ", "; ", "；"},
    {"writer.rows", "rows", "hàng", "행", "行"},
    {"writer.columns", "columns", "cột", "열", "列"},
    {"writer.turned", "(Printed with a row a token; in the tensor the tokens are the last axis.)",
     "(In mỗi token một hàng; trong tensor, token nằm ở trục cuối.)",
     "(토큰마다 한 행으로 출력한다. 텐서에서는 토큰이 마지막 축이다.)",
     "（按每个词元一行打印；在张量中词元位于最后的轴。）"},
    {"writer.given", "given, not computed", "cho sẵn, không phải tính", "주어진 값, 계산하지 않음",
     "给定，无需计算"},
    {"writer.hidden", "hidden by the mask", "bị mặt nạ che", "마스크로 가려짐", "被掩码遮住"},
    {"writer.next", "What to try next:", "Thử tiếp theo:", "다음에 해 볼 것:", "接下来可以试试："},
    {"writer.next.language", "the same in your language", "nội dung này bằng ngôn ngữ của bạn",
     "같은 내용을 다른 언어로", "用你的语言看同样的内容"},
    {"writer.next.expand", "any entry as its sum of products",
     "viết một phần tử thành tổng các tích", "한 원소를 곱의 합으로 풀어 쓰기",
     "把任一元素写成乘积之和"},
    {"writer.next.own", "your own matrices", "ma trận của chính bạn", "자신의 행렬로",
     "用你自己的矩阵"},
};

}  // namespace

std::span<const Message> writer_messages() noexcept { return kMessages; }

}  // namespace qkv
